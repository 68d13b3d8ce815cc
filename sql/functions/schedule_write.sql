-- schedule_write: appends a schedule's row (p_row) to its entity's manifest, which
-- says what is scheduled: manifest_apply carries it out. A removal (p_removed)
-- takes effect at once. The caller needs p_permission. p_target, if any, is whom
-- the schedule sends to: the caller must be able to write there.
-- Outcomes: ok | not_found | forbidden | not_running | target_not_found |
-- target_forbidden.
create or replace function rouse.schedule_write(
    p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_permission text, p_key text, p_row text, p_removed boolean, p_target text
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_status text;
    v_main   bigint;
    v_gone   bigint[];
begin
    select e.status into v_status from entities e where e.url = p_url and e.service_id = p_service_id;
    if not found then
        return 'not_found';
    elsif not p_trusted and not exists (select from entity_allowed(p_service_id, p_principal, p_permission, array[p_url])) then
        return 'forbidden';
    elsif v_status in ('stopping', 'stopped', 'killed') then
        return 'not_running';
    elsif p_target is not null and not exists (select from entities e where e.url = p_target and e.service_id = p_service_id) then
        return 'target_not_found';
    elsif p_target is not null and not p_trusted and not exists (select from entity_allowed(p_service_id, p_principal, 'write', array[p_target])) then
        return 'target_forbidden';
    end if;
    perform observe_manifest(p_service_id, p_url);
    v_main := _entity_main(p_service_id, p_url);
    perform 1 from streams s where s.id = v_main for no key update;
    if _stream_push(v_main, p_row, false) is null then
        return 'not_running';
    end if;
    if p_removed then
        with gone as (
            delete from observers o
             where o.subscriber_url = p_url and o.service_id = p_service_id and o.kind = 'wake' and o.manifest_key = p_key
            returning o.stream_id
        )
        select array_agg(g.stream_id) into v_gone from gone g;
        delete from scheduled_tasks t where t.owner_url = p_url and t.service_id = p_service_id and t.manifest_key = p_key;
        perform _observer_gone(v_gone);
    end if;
    -- As schedule.put; what a key begins with is what it is of.
    perform audit_add(p_service_id, p_principal, split_part(p_key, ':', 1) || case when p_removed then '.delete' else '.put' end, p_url,
        jsonb_strip_nulls(jsonb_build_object('key', p_key, 'target', p_target)));
    return 'ok';
end
$$;
comment on function rouse.schedule_write is 'Appends a schedule''s row to its entity''s manifest.';
