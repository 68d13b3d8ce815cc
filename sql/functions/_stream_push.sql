-- _stream_push: appends one JSON message to an open stream inside the caller's
-- transaction and returns the new tail, or null when the stream is closed,
-- gone or absent. Takes the stream's row lock. A State Protocol message must
-- begin with {"headers":{ so that its offset can be spliced in when read.
create or replace function rouse._stream_push(p_stream_id bigint, p_payload text, p_actionable boolean) returns bigint
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_bytes bytea := convert_to(p_payload, 'UTF8');
    v_tail  bigint;
    v_watch smallint;
begin
    update streams s
       set tail = s.tail + octet_length(v_bytes),
           actionable = case when p_actionable then s.tail + octet_length(v_bytes) else s.actionable end,
           pending = s.pending or p_actionable
     where s.id = p_stream_id and s.closed_at is null and s.deleted_at is null and s.path is not null
    returning s.tail, s.watched into v_tail, v_watch;
    if not found then
        return null;
    end if;
    insert into messages (stream_id, position, payload, count, stamps)
    values (p_stream_id, v_tail, v_bytes, 1, case when p_payload like '{"headers":{%' then array[12] end);
    if v_watch <> 0 then
        perform _stream_watched(array[p_stream_id]);
    end if;
    perform _notice(p_stream_id, v_tail, p_actionable::integer + 16 * v_watch);
    return v_tail;
end
$$;
comment on function rouse._stream_push(bigint, text, boolean) is 'Appends one JSON message inside the caller''s transaction.';
