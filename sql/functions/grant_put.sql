-- grant_put: adds one grant on an entity (p_grant as in _grant_add), for whoever
-- may manage it; a null principal may. Grants of the entity that have expired
-- are removed on the way. Outcomes: granted, not_found, forbidden, too_many (at
-- most 1000 an entity).
create or replace function rouse.grant_put(p_service_id integer, p_url text, p_principal text, p_by text, p_grant jsonb)
returns table (outcome text, txid bigint, grant_row rouse.entity_grants)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_owner text;
    v_now   timestamptz;
    v_id    bigint;
begin
    if _entity_root(p_service_id, p_url, false) is null then
        return query select 'not_found', null::bigint, null::entity_grants;
        return;
    end if;
    v_now := clock_timestamp();
    select e.created_by into v_owner from entities e where e.service_id = p_service_id and e.url = p_url;
    if not (p_principal is null or v_owner = p_principal or _entity_may(p_service_id, p_url, p_principal, 'manage', v_now)) then
        return query select 'forbidden', null::bigint, null::entity_grants;
        return;
    end if;
    delete from entity_grants g where g.entity_url = p_url and g.service_id = p_service_id and g.expires_at <= v_now;
    if (select count(*) from entity_grants g where g.entity_url = p_url and g.service_id = p_service_id) >= 1000 then
        return query select 'too_many', null::bigint, null::entity_grants;
        return;
    end if;
    v_id := _grant_add(p_service_id, p_url, p_by, v_now, jsonb_build_array(p_grant));
    perform audit_add(p_service_id, p_by, 'entity.grant_put', p_url, p_grant || jsonb_build_object('grant', v_id));
    return query select 'granted', _txid(), g from entity_grants g where g.id = v_id;
end
$$;
comment on function rouse.grant_put(integer, text, text, text, jsonb) is 'Adds a grant on an entity.';
