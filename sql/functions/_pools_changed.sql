-- _pools_changed: tells a runner, on its own wake stream, that it is in another
-- pool than before or out of one: {"type": "pools"}. Its next heartbeat answers
-- which. Whoever has the wake stream at this moment is not waited for, since
-- others may be locked by now: then the runner learns from its heartbeats alone.
create or replace function rouse._pools_changed(p_service_id integer, p_runner_id text, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_stream bigint;
begin
    select s.id into v_stream from runners r
      join streams s on s.path = any (array[ltrim(r.wake_stream, '/')]) and s.service_id = r.service_id
     where r.id = p_runner_id and r.service_id = p_service_id;
    perform 1 from streams s where s.id = v_stream for no key update skip locked;
    if found then
        perform _stream_push(v_stream, jsonb_build_object('type', 'pools', 'ts', floor(extract(epoch from p_now) * 1000)::bigint)::text, false);
    end if;
end
$$;
comment on function rouse._pools_changed(integer, text, timestamptz) is 'Tells a runner that its pools have changed.';
