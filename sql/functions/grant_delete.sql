-- grant_delete: takes a grant back, and with it what it came to for
-- descendants; copies that children got are their own. Outcomes: deleted,
-- not_found (no such entity), no_grant, forbidden.
create or replace function rouse.grant_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id bigint)
returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_owner text;
begin
    if _entity_root(p_service_id, p_url, false) is null then
        return query select 'not_found', null::bigint;
        return;
    end if;
    select e.created_by into v_owner from entities e where e.service_id = p_service_id and e.url = p_url;
    if not (p_principal is null or v_owner = p_principal or _entity_may(p_service_id, p_url, p_principal, 'manage', clock_timestamp())) then
        return query select 'forbidden', null::bigint;
        return;
    end if;
    delete from entity_grants g where g.id = p_id and g.entity_url = p_url and g.service_id = p_service_id;
    if not found then
        return query select 'no_grant', null::bigint;
        return;
    end if;
    perform audit_add(p_service_id, p_by, 'entity.grant_delete', p_url, jsonb_build_object('grant', p_id));
    return query select 'deleted', _txid();
end
$$;
comment on function rouse.grant_delete(integer, text, text, text, bigint) is 'Takes a grant on an entity back.';
