-- observe_unregister: an entity is not woken any more by a source (p_source) or
-- by what one manifest key asked for. Nothing to remove is fine.
-- Outcomes: ok | not_found | forbidden.
create or replace function rouse.observe_unregister(
    p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_manifest_key text
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_streams bigint[];
begin
    if not exists (select from entities e where e.url = p_subscriber and e.service_id = p_service_id) then
        return 'not_found';
    elsif not p_trusted and not exists (select from entity_allowed(p_service_id, p_principal, 'write', array[p_subscriber])) then
        return 'forbidden';
    end if;
    with gone as (
        delete from observers o
         where o.subscriber_url = p_subscriber and o.service_id = p_service_id and o.kind = 'wake'
           and (p_source is null or o.source_path = _observe_source(p_service_id, p_source))
           and (p_manifest_key is null or o.manifest_key = p_manifest_key)
        returning o.stream_id
    )
    select array_agg(g.stream_id) into v_streams from gone g;
    perform _observer_gone(v_streams);
    if v_streams is not null then
        perform audit_add(p_service_id, p_principal, 'wake.unregister', p_subscriber, jsonb_strip_nulls(jsonb_build_object('source', p_source, 'key', p_manifest_key)));
    end if;
    return 'ok';
end
$$;
comment on function rouse.observe_unregister(integer, text, boolean, text, text, text) is 'Removes what an entity is woken by.';
