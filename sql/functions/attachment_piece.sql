-- attachment_piece: one piece of a file, of a megabyte at most, that ends at
-- p_position of the stream which attachment_begin made in this transaction.
create or replace function rouse.attachment_piece(p_stream_id bigint, p_position bigint, p_bytes bytea) returns void
language sql
set search_path = rouse, pg_temp
as $$
    insert into messages (stream_id, position, payload, count) values (p_stream_id, p_position, p_bytes, 1)
$$;
comment on function rouse.attachment_piece(bigint, bigint, bytea) is 'Adds a piece to a file.';
