-- pool_put: makes a worker pool with its wake stream, or changes one. An id
-- belongs to its first registrar, also when the pool is gone, since policies may
-- still name it; only the system makes it again for another. A null field keeps its value on a change; the limits are set together,
-- null for none, when p_limits_given. A raised limit or an enabling tells the
-- pool of as many waiting wakes as there is room for.
-- Outcomes: created, updated, forbidden, path_taken.
create or replace function rouse.pool_put(
    p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_name text, p_admin_status text,
    p_max_per_runner integer, p_max_total integer, p_limits_given boolean
) returns table (outcome text, txid bigint, pool rouse.worker_pools)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_was    worker_pools;
    v_row    worker_pools;
    v_stream bigint;
    v_old    retired_pools;
begin
    loop
        insert into worker_pools (service_id, id, owner_principal, name, admin_status, wake_stream, max_concurrent_claims_per_runner, max_total_claims)
        values (p_service_id, p_id, p_owner, coalesce(p_name, p_id), coalesce(p_admin_status, 'enabled'), '/worker-pools/' || p_id || '/wake',
                p_max_per_runner, p_max_total)
        on conflict (id, service_id) do nothing
        returning * into v_row;
        if found then
            select * into v_old from retired_pools x where x.id = p_id and x.service_id = p_service_id;
            if found then
                if v_old.owner_principal <> p_owner and not p_system then
                    delete from worker_pools w where w.service_id = p_service_id and w.id = p_id;
                    return query select 'forbidden', null::bigint, null::worker_pools;
                    return;
                end if;
                update worker_pools w set join_generation = v_old.join_generation + 1 where w.service_id = p_service_id and w.id = p_id;
            end if;
            insert into streams (service_id, path, kind, owner, content_type, is_json)
            values (p_service_id, ltrim(v_row.wake_stream, '/'), 'wake', p_owner, 'application/json', true)
            on conflict (service_id, path) do nothing
            returning id into v_stream;
            if not found then
                -- Somebody had a plain stream of that name before the name was reserved.
                delete from worker_pools w where w.service_id = p_service_id and w.id = p_id;
                return query select 'path_taken', null::bigint, null::worker_pools;
                return;
            end if;
            perform _notice(v_stream, 0, 8);
            perform audit_add(p_service_id, p_principal, 'pool.create', '/worker-pools/' || p_id, null);
            return query select 'created', _txid(), v_row;
            return;
        end if;
        select * into v_was from worker_pools w where w.service_id = p_service_id and w.id = p_id for update;
        exit when found; -- else it was removed just now, and is made again
    end loop;
    if v_was.owner_principal <> p_owner and not (p_system and p_owner = p_principal) then
        return query select 'forbidden', null::bigint, null::worker_pools;
        return;
    end if;
    update worker_pools w
       set name = coalesce(p_name, w.name), admin_status = coalesce(p_admin_status, w.admin_status),
           max_concurrent_claims_per_runner = case when p_limits_given then p_max_per_runner else w.max_concurrent_claims_per_runner end,
           max_total_claims = case when p_limits_given then p_max_total else w.max_total_claims end,
           updated_at = clock_timestamp()
     where w.service_id = p_service_id and w.id = p_id
       and (w.name, w.admin_status, w.max_concurrent_claims_per_runner, w.max_total_claims) is distinct from
           (coalesce(p_name, w.name), coalesce(p_admin_status, w.admin_status),
            case when p_limits_given then p_max_per_runner else w.max_concurrent_claims_per_runner end,
            case when p_limits_given then p_max_total else w.max_total_claims end)
    returning * into v_row;
    if not found then
        return query select 'updated', _txid(), v_was;
        return;
    end if;
    if v_row.admin_status = 'enabled'
       and (v_was.admin_status <> 'enabled'
            or coalesce(v_row.max_total_claims, 2147483647) > coalesce(v_was.max_total_claims, 2147483647)
            or coalesce(v_row.max_concurrent_claims_per_runner, 2147483647) > coalesce(v_was.max_concurrent_claims_per_runner, 2147483647)) then
        perform _pool_tell(p_service_id, p_id, null, clock_timestamp());
    elsif v_row.admin_status <> 'enabled' and v_was.admin_status = 'enabled' then
        perform _target_left(p_service_id, null, array[p_id], clock_timestamp());
    end if;
    perform audit_add(p_service_id, p_principal, 'pool.update', '/worker-pools/' || p_id, jsonb_build_object(
        'admin_status', v_row.admin_status, 'max_concurrent_claims_per_runner', v_row.max_concurrent_claims_per_runner,
        'max_total_claims', v_row.max_total_claims));
    return query select 'updated', _txid(), v_row;
end
$$;
comment on function rouse.pool_put(integer, text, text, boolean, text, text, text, integer, integer, boolean) is 'Makes or changes a worker pool and its wake stream.';
