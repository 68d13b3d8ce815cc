-- grant_type_delete: takes a grant on an entity type back. Outcomes: deleted,
-- not_found (no such type), no_grant, forbidden.
create or replace function rouse.grant_type_delete(p_service_id integer, p_name text, p_principal text, p_by text, p_id bigint) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_type entity_types;
begin
    select * into v_type from entity_types t where t.service_id = p_service_id and t.name = p_name for no key update;
    if not found then
        return 'not_found';
    end if;
    if not (p_principal is null or v_type.owner_principal = p_principal
            or _entity_type_may(p_service_id, p_name, p_principal, 'manage', clock_timestamp())) then
        return 'forbidden';
    end if;
    delete from entity_type_grants g where g.id = p_id and g.entity_type = p_name and g.service_id = p_service_id;
    if not found then
        return 'no_grant';
    end if;
    perform audit_add(p_service_id, p_by, 'entity_type.grant_delete', '/entity-types/' || p_name, jsonb_build_object('grant', p_id));
    return 'deleted';
end
$$;
comment on function rouse.grant_type_delete(integer, text, text, text, bigint) is 'Takes a grant on an entity type back.';
