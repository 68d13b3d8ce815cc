-- entity_type_put: registers or replaces an entity type. The registration
-- belongs to its first registrar, who may replace it, and so may whoever has a
-- grant of manage; a replacement counts the revision up and keeps created_at.
-- Outcomes: created, updated, forbidden.
create or replace function rouse.entity_type_put(
    p_service_id integer, p_name text, p_principal text, p_system boolean, p_description text,
    p_creation_schema jsonb, p_inbox_schemas jsonb, p_state_schemas jsonb, p_slash_commands jsonb,
    p_serve_endpoint text, p_default_dispatch_policy jsonb, p_permission_grants jsonb,
    p_externally_writable_collections jsonb
) returns table (outcome text, txid bigint, entity_type rouse.entity_types)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_row     entity_types;
    v_outcome text := 'created';
    v_now     timestamptz;
begin
    insert into entity_types (service_id, name, description, creation_schema, inbox_schemas, state_schemas, slash_commands,
            serve_endpoint, default_dispatch_policy, permission_grants, externally_writable_collections, owner_principal)
    values (p_service_id, p_name, p_description, p_creation_schema, p_inbox_schemas, p_state_schemas, p_slash_commands,
            p_serve_endpoint, p_default_dispatch_policy, p_permission_grants, p_externally_writable_collections, p_principal)
    on conflict (service_id, name) do nothing
    returning * into v_row;
    if not found then
        select * into v_row from entity_types t where t.service_id = p_service_id and t.name = p_name for update;
        if not found then
            -- Deleted between the two statements: the caller tries again.
            return query select 'gone', null::bigint, null::entity_types;
            return;
        end if;
        if not (p_system or v_row.owner_principal = p_principal
               or _entity_type_may(p_service_id, p_name, p_principal, 'manage', clock_timestamp())) then
            return query select 'forbidden', null::bigint, null::entity_types;
            return;
        end if;
        v_outcome := 'updated';
        v_now := clock_timestamp();
        update entity_types t
           set description = p_description, creation_schema = p_creation_schema, inbox_schemas = p_inbox_schemas,
               state_schemas = p_state_schemas, slash_commands = p_slash_commands, serve_endpoint = p_serve_endpoint,
               default_dispatch_policy = p_default_dispatch_policy, permission_grants = p_permission_grants,
               externally_writable_collections = p_externally_writable_collections,
               revision = t.revision + 1, updated_at = v_now
         where t.service_id = p_service_id and t.name = p_name
        returning * into v_row;
    end if;
    if p_permission_grants is not null then
        perform _grant_type_ensure(p_service_id, p_name, p_principal, p_permission_grants, clock_timestamp());
    end if;
    perform audit_add(p_service_id, p_principal, 'entity_type.put', '/entity-types/' || p_name,
        jsonb_build_object('revision', v_row.revision));
    return query select v_outcome, _txid(), v_row;
end
$$;
comment on function rouse.entity_type_put(integer, text, text, boolean, text, jsonb, jsonb, jsonb, jsonb, text, jsonb, jsonb, jsonb)
    is 'Registers or replaces an entity type.';
