-- pool_get: a worker pool with its members, what they hold of it now, counted
-- from live claims, and how many of its wakes nobody has claimed. A member is
-- online while its runner is enabled and alive. Of a runner whose owner has not
-- agreed to be in it nothing is told but whose it is. No row when there is no such
-- pool; who may see it is the caller's to judge: its owner and the owners of
-- its members.
create or replace function rouse.pool_get(p_service_id integer, p_id text)
returns table (pool rouse.worker_pools, members jsonb, active_claims bigint, waiting bigint)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    return query
    with held as materialized (
        select k.runner_id, count(*) as n from consumer_claims k
         where k.pool_id = p_id and k.service_id = p_service_id and k.status = 'active' and k.lease_expires_at > clock_timestamp()
         group by k.runner_id
    )
    select w,
           coalesce((select jsonb_agg(jsonb_build_object(
                        'runnerId', m.runner_id, 'label', case when m.accepted then r.label end, 'ownerPrincipal', m.owner_principal, 'status', m.status,
                        'online', case when m.accepted then r.admin_status = 'enabled' and coalesce(g.liveness_lease_expires_at > clock_timestamp(), false) end,
                        'adminStatus', case when m.accepted then r.admin_status end, 'activeClaims', coalesce(h.n, 0),
                        'capacity', case when m.accepted then r.capacity end,
                        'addedBy', m.added_by, 'createdAt', m.created_at) order by m.runner_id)
                       from worker_pool_members m
                       join runners r on r.id = any (array[m.runner_id]) and r.service_id = m.service_id
                       left join runner_runtime_diagnostics g on g.runner_id = any (array[m.runner_id]) and g.service_id = m.service_id
                       left join held h on h.runner_id = m.runner_id
                      where m.pool_id = w.id and m.service_id = w.service_id), '[]'),
           coalesce((select sum(h.n)::bigint from held h), 0),
           (select count(*) from wake_notifications n
             where n.target_pool_id = w.id and n.service_id = w.service_id and n.resolved_at is null and n.claim_status = 'unclaimed')
      from worker_pools w where w.id = p_id and w.service_id = p_service_id;
end
$$;
comment on function rouse.pool_get(integer, text) is 'A worker pool with its members and its load.';
