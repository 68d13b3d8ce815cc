-- entity_type_patch_schemas: adds schemas to a type, never changes one.
-- Outcomes: updated, not_found, forbidden, key_exists (with the first key that
-- is taken).
create or replace function rouse.entity_type_patch_schemas(
    p_service_id integer, p_name text, p_principal text, p_system boolean, p_inbox_schemas jsonb, p_state_schemas jsonb
) returns table (outcome text, txid bigint, taken_key text, entity_type rouse.entity_types)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_row   entity_types;
    v_taken text;
    v_now   timestamptz;
begin
    select * into v_row from entity_types t where t.service_id = p_service_id and t.name = p_name for update;
    if not found then
        return query select 'not_found', null::bigint, null::text, null::entity_types;
        return;
    end if;
    if not (p_system or v_row.owner_principal = p_principal
            or _entity_type_may(p_service_id, p_name, p_principal, 'manage', clock_timestamp())) then
        return query select 'forbidden', null::bigint, null::text, null::entity_types;
        return;
    end if;
    select k into v_taken from (
        select k from jsonb_object_keys(coalesce(p_inbox_schemas, '{}')) k where v_row.inbox_schemas ? k
        union all
        select k from jsonb_object_keys(coalesce(p_state_schemas, '{}')) k where v_row.state_schemas ? k) x
     order by k limit 1;
    if found then
        return query select 'key_exists', null::bigint, v_taken, v_row;
        return;
    end if;
    v_now := clock_timestamp();
    update entity_types t
       set inbox_schemas = case when p_inbox_schemas is null then t.inbox_schemas
                                else coalesce(t.inbox_schemas, '{}') || p_inbox_schemas end,
           state_schemas = case when p_state_schemas is null then t.state_schemas
                                else coalesce(t.state_schemas, '{}') || p_state_schemas end,
           revision = t.revision + 1, updated_at = v_now
     where t.service_id = p_service_id and t.name = p_name
    returning * into v_row;
    perform audit_add(p_service_id, p_principal, 'entity_type.patch_schemas', '/entity-types/' || p_name,
        jsonb_build_object('revision', v_row.revision));
    return query select 'updated', _txid(), null::text, v_row;
end
$$;
comment on function rouse.entity_type_patch_schemas(integer, text, text, boolean, jsonb, jsonb) is 'Adds schemas to an entity type.';
