-- membership_ensure: makes the stream of the entities that have the tags and that
-- the principal may read. membership_fill and membership_check fill it; the latter
-- removes it when nobody has asked for it for a long time.
create or replace function rouse.membership_ensure(p_service_id integer, p_principal text, p_trusted boolean, p_ref text, p_tags jsonb) returns void
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_stream bigint;
begin
    update memberships m set touched_at = clock_timestamp()
     where m.ref = p_ref and m.service_id = p_service_id and m.touched_at < clock_timestamp() - interval '1 hour';
    if exists (select from memberships m where m.ref = p_ref and m.service_id = p_service_id) then
        return;
    end if;
    select c.stream_id into v_stream
      from stream_create(p_service_id, '_entities/' || p_ref, 'application/json', p_kind => 'members', p_owner => p_principal) c
     where c.outcome in ('created', 'exists');
    if v_stream is null then
        return;
    end if;
    update services s set memberships = true where s.id = p_service_id and not s.memberships;
    insert into memberships (service_id, ref, stream_id, tags, principal, trusted)
    values (p_service_id, p_ref, v_stream, p_tags, p_principal, p_trusted) on conflict on constraint memberships_ref_key do nothing;
end
$$;
comment on function rouse.membership_ensure(integer, text, boolean, text, jsonb) is 'Makes a membership stream.';
