-- _target_state: whether a target would take a wake at p_now: ok, gone (there is
-- no such runner or pool), offline (the runner, or every active member of the
-- pool, is disabled or not alive, or the pool is disabled) or full (as many live
-- claims as its limits allow). alive_until is when the last of them stops being
-- online unless it is heard of. Nothing is locked: a claim decides again under
-- the locks. A target that is sent its wakes is always ok.
create or replace function rouse._target_state(
    p_service_id integer, p_target jsonb, p_now timestamptz, out state text, out alive_until timestamptz
)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_pool  worker_pools;
    v_limit integer;
    v_held  bigint;
begin
    state := 'ok';
    if p_target ->> 'type' = 'runner' then
        select case when r.admin_status = 'enabled' then g.liveness_lease_expires_at end, r.capacity into alive_until, v_limit
          from runners r
          left join lateral (select g.liveness_lease_expires_at from runner_runtime_diagnostics g
                              where g.runner_id = r.id and g.service_id = r.service_id limit 1) g on true
         where r.id = p_target ->> 'runnerId' and r.service_id = p_service_id;
        if not found then
            state := 'gone';
        elsif alive_until is null or alive_until <= p_now then
            state := 'offline';
        elsif v_limit <= (select count(*) from consumer_claims k
                           where k.runner_id = p_target ->> 'runnerId' and k.service_id = p_service_id
                             and k.status = 'active' and k.lease_expires_at > p_now) then
            state := 'full';
        end if;
    elsif p_target ->> 'type' = 'worker-pool' then
        select * into v_pool from worker_pools w where w.id = p_target ->> 'workerPoolId' and w.service_id = p_service_id;
        if not found then
            state := 'gone';
            return;
        end if;
        select max(g.liveness_lease_expires_at) into alive_until
          from worker_pool_members m
          join runners r on r.id = any (array[m.runner_id]) and r.service_id = m.service_id and r.admin_status = 'enabled'
          join runner_runtime_diagnostics g on g.runner_id = any (array[m.runner_id]) and g.service_id = m.service_id
         where m.pool_id = v_pool.id and m.service_id = p_service_id and m.status = 'active' and v_pool.admin_status = 'enabled';
        if alive_until is null or alive_until <= p_now then
            state := 'offline';
            return;
        end if;
        if v_pool.max_total_claims is not null then
            select count(*) into v_held from consumer_claims k
             where k.pool_id = v_pool.id and k.service_id = p_service_id and k.status = 'active' and k.lease_expires_at > p_now;
        end if;
        if v_held >= v_pool.max_total_claims or not exists (
               select from worker_pool_members m
                 join runners r on r.id = any (array[m.runner_id]) and r.service_id = m.service_id and r.admin_status = 'enabled'
                 join runner_runtime_diagnostics g on g.runner_id = any (array[m.runner_id]) and g.service_id = m.service_id
                where m.pool_id = v_pool.id and m.service_id = p_service_id and m.status = 'active' and g.liveness_lease_expires_at > p_now
                  and (coalesce(v_pool.max_concurrent_claims_per_runner, r.capacity) is null
                       or (select count(*) < coalesce(r.capacity, 2147483647)
                                  and count(*) filter (where k.pool_id = v_pool.id) < coalesce(v_pool.max_concurrent_claims_per_runner, 2147483647)
                             from consumer_claims k
                            where k.runner_id = m.runner_id and k.service_id = p_service_id and k.status = 'active' and k.lease_expires_at > p_now))) then
            state := 'full';
        end if;
    end if;
end
$$;
comment on function rouse._target_state(integer, jsonb, timestamptz) is 'Whether a target would take a wake at a chosen time.';
