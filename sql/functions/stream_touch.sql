-- stream_touch: a read extends the life of a stream with a time-to-live.
-- Returns false when there was nothing to extend or somebody else is at it.
create or replace function rouse.stream_touch(p_stream_id bigint) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return _stream_touch(p_stream_id, null);
end
$$;
comment on function rouse.stream_touch(bigint) is 'Extends the life of a stream with a time-to-live.';
