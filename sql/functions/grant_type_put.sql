-- grant_type_put: adds one grant ({permission, subject_kind, subject_value,
-- expires_at?}) on an entity type, for whoever may manage it; a null principal
-- may. Expired grants of the type are removed on the way. Outcomes: granted,
-- not_found, forbidden, too_many (at most 1000 a type).
create or replace function rouse.grant_type_put(p_service_id integer, p_name text, p_principal text, p_by text, p_grant jsonb)
returns table (outcome text, grant_row rouse.entity_type_grants)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_type entity_types;
    v_row  entity_type_grants;
    v_now  timestamptz;
begin
    select * into v_type from entity_types t where t.service_id = p_service_id and t.name = p_name for no key update;
    if not found then
        return query select 'not_found', null::entity_type_grants;
        return;
    end if;
    v_now := clock_timestamp();
    if not (p_principal is null or v_type.owner_principal = p_principal or _entity_type_may(p_service_id, p_name, p_principal, 'manage', v_now)) then
        return query select 'forbidden', null::entity_type_grants;
        return;
    end if;
    delete from entity_type_grants g where g.entity_type = p_name and g.service_id = p_service_id and g.expires_at <= v_now;
    if (select count(*) from entity_type_grants g where g.entity_type = p_name and g.service_id = p_service_id) >= 1000 then
        return query select 'too_many', null::entity_type_grants;
        return;
    end if;
    insert into entity_type_grants (service_id, entity_type, permission, subject_kind, subject_value, expires_at, created_by, created_at, updated_at)
    values (p_service_id, p_name, p_grant ->> 'permission', p_grant ->> 'subject_kind', p_grant ->> 'subject_value',
            (p_grant ->> 'expires_at')::timestamptz, p_by, v_now, v_now)
    returning * into v_row;
    perform audit_add(p_service_id, p_by, 'entity_type.grant_put', '/entity-types/' || p_name, p_grant || jsonb_build_object('grant', v_row.id));
    return query select 'granted', v_row;
end
$$;
comment on function rouse.grant_type_put(integer, text, text, text, jsonb) is 'Adds a grant on an entity type.';
