-- wake_stream_key: the public key that the entries of a runner's wake stream
-- are sealed to as they are read; null for none, and for a stream that is not
-- one runner's. A read asks in its own statement, so that it sees the key as it
-- was when it saw the entries.
create or replace function rouse.wake_stream_key(p_stream_id bigint) returns bytea
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    return (select r.wake_key from streams s
              join runners r on r.id = any (array[split_part(s.path, '/', 2)]) and r.service_id = s.service_id
             where s.id = p_stream_id and s.kind = 'wake' and s.path like 'runners/%/wake');
end
$$;
comment on function rouse.wake_stream_key(bigint) is 'The key that a runner''s wake stream is sealed to.';
