-- entity_type_delete: removes a registration, its grants and its limits; its
-- entities stay as they are.
-- Outcomes: deleted, not_found, forbidden.
create or replace function rouse.entity_type_delete(
    p_service_id integer, p_name text, p_principal text, p_system boolean
) returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_row entity_types;
begin
    select * into v_row from entity_types t where t.service_id = p_service_id and t.name = p_name for update;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    end if;
    if not (p_system or v_row.owner_principal = p_principal
            or _entity_type_may(p_service_id, p_name, p_principal, 'manage', clock_timestamp())) then
        return query select 'forbidden', null::bigint;
        return;
    end if;
    delete from entity_type_grants g where g.entity_type = p_name and g.service_id = p_service_id;
    delete from type_retention t where t.entity_type = p_name and t.service_id = p_service_id;
    delete from entity_types t where t.service_id = p_service_id and t.name = p_name;
    perform audit_add(p_service_id, p_principal, 'entity_type.delete', '/entity-types/' || p_name,
        jsonb_build_object('revision', v_row.revision));
    return query select 'deleted', _txid();
end
$$;
comment on function rouse.entity_type_delete(integer, text, text, boolean) is 'Removes an entity type''s registration.';
