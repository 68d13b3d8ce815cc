-- entity_spawn: makes an entity in one transaction: its row, its mutex, its
-- main stream with the creation event and the type's slash commands, its cursor
-- behind those (so that creation wakes nobody), its dispatch state, and the
-- first message, if any, which wakes through the log like every other append.
-- The effective dispatch policy (explicit, else the parent's, else the type's)
-- is fixed here. The caller has validated the arguments against revision
-- p_type_revision of the type. p_system bypasses ownership; p_open lets
-- everybody spawn the type, else its registrar may and whoever has a grant of
-- spawn on it. A child needs spawn on its parent, and gets what the parent's
-- grants say (_grant_inherit). p_grants ([…] as in _grant_add) are its own;
-- broad ones (manage, to a kind, for descendants or children) need manage on
-- the parent. p_lease_ms and p_wake_ms time its claims and how long a wake
-- waits before it is told again.
-- Outcomes: spawned, duplicate, path_taken, unknown_type, type_changed,
-- type_forbidden, parent_not_found, parent_forbidden, parent_not_running,
-- grants_forbidden, runner_not_found, runner_forbidden, pool_not_found,
-- pool_forbidden.
create or replace function rouse.entity_spawn(
    p_service_id integer, p_url text, p_type text, p_type_revision integer, p_principal text, p_system boolean,
    p_open boolean, p_args jsonb, p_tags jsonb, p_parent text, p_policy jsonb, p_sandbox jsonb,
    p_created text, p_message text, p_lease_ms integer default 30000, p_wake_ms integer default 30000,
    p_grants jsonb default null
) returns table (outcome text, txid bigint, entity rouse.entities)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_path     text := substr(p_url, 2);
    v_type     entity_types;
    v_above    record;
    v_parent   entities;
    v_policy   jsonb;
    v_refusal  text;
    v_name     text;
    v_taken    streams;
    v_stream   bigint;
    v_consumer bigint;
    v_tail     bigint;
    v_row      entities;
    v_command  jsonb;
    v_now      timestamptz;
begin
    select * into v_type from entity_types t where t.service_id = p_service_id and t.name = p_type;
    if not found then
        return query select 'unknown_type', null::bigint, null::entities;
        return;
    elsif v_type.revision <> p_type_revision then
        return query select 'type_changed', null::bigint, null::entities;
        return;
    elsif not (p_system or p_open or v_type.owner_principal = p_principal
               or _entity_type_may(p_service_id, p_type, p_principal, 'spawn', clock_timestamp())) then
        return query select 'type_forbidden', null::bigint, null::entities;
        return;
    end if;

    if p_parent is not null then
        select * into v_above from _entity_parent(p_service_id, p_parent, case when not p_system then p_principal end);
        v_refusal := v_above.refusal;
        v_parent := v_above.parent;
        if v_refusal is null and p_grants is not null
           and not (p_system or v_parent.created_by = p_principal
                    or _entity_may(p_service_id, p_parent, p_principal, 'manage', clock_timestamp()))
           and exists (select from jsonb_to_recordset(p_grants) as x (permission text, subject_kind text, propagation text, copy_to_children boolean)
                        where x.permission = 'manage' or x.subject_kind = 'principal_kind' or x.propagation = 'descendants' or x.copy_to_children) then
            v_refusal := 'grants_forbidden';
        end if;
        if v_refusal is not null then
            return query select v_refusal, null::bigint, null::entities;
            return;
        end if;
    end if;

    v_policy := coalesce(p_policy, v_parent.dispatch_policy, v_type.default_dispatch_policy);
    v_refusal := _targets_refusal(p_service_id, v_policy, p_principal, p_system);
    if v_refusal is not null then
        return query select v_refusal, null::bigint, null::entities;
        return;
    end if;

    v_now := clock_timestamp();
    -- A plain stream has one of the names: an expired one is absent for
    -- everybody, any other keeps it. Looked up by the name alone, which is one
    -- probe of its index.
    foreach v_name in array array[v_path || '/error', v_path || '/main'] loop
        select * into v_taken from streams s where s.service_id = p_service_id and s.path = v_name;
        if found and v_taken.kind = 'app' then
            select * into v_taken from streams s where s.id = v_taken.id for update;
            v_now := clock_timestamp();
            if v_taken.path = v_name and v_taken.deleted_at is null and v_taken.expires_at <= v_now then
                perform _stream_retire(v_taken.id, v_now);
            elsif v_taken.path = v_name then
                return query select 'path_taken', null::bigint, null::entities;
                return;
            end if;
        end if;
    end loop;
    -- The main stream's name decides races of equal spawns.
    insert into streams (service_id, path, kind, owner, content_type, is_json, created_at)
    values (p_service_id, v_path || '/main', 'entity', p_principal, 'application/json', true, v_now)
    on conflict (service_id, path) do nothing
    returning id into v_stream;
    if not found then
        return query select case when exists (select from entities e where e.service_id = p_service_id and e.url = p_url)
                                 then 'duplicate' else 'path_taken' end, null::bigint, null::entities;
        return;
    end if;

    insert into consumers (service_id, name, kind, entity_url, lease_ttl_ms, wake_ttl_ms, created_at)
    values (p_service_id, 'e_' || left(encode(sha256(convert_to(p_service_id || '/' || p_url, 'UTF8')), 'hex'), 32),
            'entity', p_url, p_lease_ms, p_wake_ms, v_now)
    returning id into v_consumer;
    update streams s set consumer_id = v_consumer where s.id = v_stream;
    perform _subscription_discover(p_service_id, v_stream, v_path || '/main', 'entity', p_principal, 0);
    perform _notice(v_stream, 0, 8);
    v_tail := _stream_push(v_stream, p_created, false);
    -- The commands that the type itself offers: what clients show is on the stream.
    if jsonb_typeof(v_type.slash_commands) = 'array' then
        for v_command in select c from jsonb_array_elements(v_type.slash_commands) c where jsonb_typeof(c -> 'name') = 'string' loop
            v_tail := _stream_push(v_stream, '{"headers":{"operation":"insert"},"type":"slash_command","key":' || (v_command -> 'name')::text
                || ',"value":' || (v_command || jsonb_build_object('source', 'static',
                    'updated_at', to_char(v_now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))::text || '}', false);
        end loop;
    end if;
    insert into consumer_streams (consumer_id, stream_id, acked) values (v_consumer, v_stream, v_tail);
    insert into entities (service_id, url, type, status, dispatch_policy, tags, spawn_args, sandbox, parent, created_by,
            type_revision, inbox_schemas, state_schemas, consumer_id, created_at, updated_at)
    values (p_service_id, p_url, p_type, 'idle', v_policy, coalesce(p_tags, '{}'), coalesce(p_args, '{}'), p_sandbox, p_parent,
            p_principal, v_type.revision, v_type.inbox_schemas, v_type.state_schemas, v_consumer, v_now, v_now)
    returning * into v_row;
    insert into entity_dispatch_state (service_id, entity_url, updated_at) values (p_service_id, p_url, v_now);
    if p_parent is not null then
        perform _grant_inherit(p_service_id, p_url, p_parent, p_principal, v_now);
    end if;
    if p_grants is not null then
        perform _grant_add(p_service_id, p_url, p_principal, v_now, p_grants);
    end if;
    perform audit_add(p_service_id, p_principal, 'entity.spawn', p_url, jsonb_build_object('type', p_type));
    if p_message is not null then
        perform _stream_push(v_stream, p_message, true);
    end if;
    return query select 'spawned', _txid(), v_row;
end
$$;
comment on function rouse.entity_spawn(integer, text, text, integer, text, boolean, boolean, jsonb, jsonb, text, jsonb, jsonb, text, text, integer, integer, jsonb)
    is 'Makes an entity with its stream, mutex, cursor and dispatch state in one transaction.';
