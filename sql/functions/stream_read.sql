-- stream_read: one page of a stream after a position (null = its tail, below
-- zero = the first that is kept), and
-- what a reader needs to know about the stream. By name, or by id when
-- p_stream_id is given (a tail that has found its stream already).
-- page = the appends' payloads, joined (JSON: by commas, without brackets), at
-- least one append, at most p_max_bytes beyond the first and p_max_rows
-- appends. next = the position to go on from; the page reaches the tail if next
-- = tail. Of a JSON page, positions says where each of its appends ends in the
-- stream and stamps, separated by semicolons, what messages.stamps says of each.
-- touch says that the read should extend the stream's life (stream_touch).
-- Outcomes: ok | not_found | gone | beyond (p_from is past the tail) | trimmed
-- (p_from is before what is kept, which begins at next).
create or replace function rouse.stream_read(
    p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer default 1048576, p_max_rows integer default 16384)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz, touch boolean,
               next bigint, page bytea, positions bigint[], stamps text)
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_read(p_service, p_path, p_stream_id, p_from, p_max_bytes, p_max_rows, null);
end
$$;
comment on function rouse.stream_read is 'One bounded page of a stream and its metadata, in one round trip.';
