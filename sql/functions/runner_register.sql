-- runner_register: makes a runner with its wake stream, or changes one. An id
-- belongs to its first registrar for ever; nobody else may change it. A null
-- field keeps its value on a change. Enabled, or of a higher capacity than before, it
-- is told of the wakes that wait for it. Outcomes: created, updated, forbidden,
-- path_taken.
create or replace function rouse.runner_register(
    p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text,
    p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer
) returns table (outcome text, txid bigint, runner rouse.runners)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_row    runners;
    v_was    runners;
    v_stream bigint;
    v_now    timestamptz;
    v_kind   text;
begin
    insert into runners (service_id, id, owner_principal, label, kind, admin_status, wake_stream, sandbox_profiles, capacity)
    values (p_service_id, p_id, p_owner, p_label, coalesce(p_kind, 'local'), coalesce(p_admin_status, 'enabled'),
            '/runners/' || p_id || '/wake', coalesce(p_sandbox_profiles, '[]'), p_capacity)
    on conflict (service_id, id) do nothing
    returning * into v_row;
    if found then
        insert into streams (service_id, path, kind, owner, content_type, is_json)
        values (p_service_id, 'runners/' || p_id || '/wake', 'wake', p_owner, 'application/json', true)
        on conflict (service_id, path) do nothing
        returning id into v_stream;
        if not found then
            -- The name is reserved, so only a direct writer of the tables can have taken it.
            delete from runners r where r.service_id = p_service_id and r.id = p_id;
            return query select 'path_taken', null::bigint, null::runners;
            return;
        end if;
        perform _notice(v_stream, 0, 8);
        insert into runner_runtime_diagnostics (service_id, runner_id, owner_principal)
        values (p_service_id, p_id, p_owner)
        on conflict (service_id, runner_id) do nothing;
        perform audit_add(p_service_id, p_principal, 'runner.register', '/runners/' || p_id, jsonb_build_object('kind', v_row.kind));
        return query select 'created', _txid(), v_row;
        return;
    end if;

    select * into v_row from runners r where r.service_id = p_service_id and r.id = p_id for update;
    if v_row.owner_principal <> p_owner and not (p_system and p_owner = p_principal) then
        return query select 'forbidden', null::bigint, null::runners;
        return;
    end if;
    v_now := clock_timestamp();
    v_was := v_row;
    update runners r
       set label = p_label, kind = coalesce(p_kind, r.kind), admin_status = coalesce(p_admin_status, r.admin_status),
           sandbox_profiles = coalesce(p_sandbox_profiles, r.sandbox_profiles), capacity = coalesce(p_capacity, r.capacity),
           updated_at = v_now
     where r.service_id = p_service_id and r.id = p_id
       and (r.label, r.kind, r.admin_status, r.sandbox_profiles, r.capacity) is distinct from
           (p_label, coalesce(p_kind, r.kind), coalesce(p_admin_status, r.admin_status),
            coalesce(p_sandbox_profiles, r.sandbox_profiles), coalesce(p_capacity, r.capacity))
    returning * into v_row;
    if found then
        if v_row.admin_status = 'enabled' and (v_was.admin_status <> 'enabled' or v_row.capacity > v_was.capacity) then
            perform _runner_tell(p_service_id, p_id, v_now);
        elsif v_row.admin_status <> 'enabled' and v_was.admin_status = 'enabled' then
            perform _target_left(p_service_id, p_id, array(select m.pool_id from worker_pool_members m where m.runner_id = p_id and m.service_id = p_service_id and m.status = 'active'), v_now);
        end if;
        perform audit_add(p_service_id, p_principal, 'runner.update', '/runners/' || p_id, null);
    else
        select * into v_row from runners r where r.service_id = p_service_id and r.id = p_id;
    end if;
    return query select 'updated', _txid(), v_row;
end
$$;
comment on function rouse.runner_register(integer, text, text, boolean, text, text, text, text, jsonb, integer) is 'Makes or changes a runner and its wake stream.';
