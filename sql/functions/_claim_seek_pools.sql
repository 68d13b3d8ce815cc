-- _claim_seek_pools: _claim_seek for a member of pools: the oldest wake that
-- waits for the runner itself or for one of p_pools that is enabled and has room
-- for it, which the decision counts again under the locks. Of each the oldest
-- that are locked by others are passed over, up to a hundred; if nothing else is
-- left, one of them is waited for, or the call is busy.
create or replace function rouse._claim_seek_pools(p_op rouse.claim_op, p_pools text[], p_wait boolean, p_now timestamptz) returns rouse.claim_op
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_pools text[];
    v_wakes uuid[];
begin
    select array_agg(w.id) into v_pools
      from unnest(p_pools) p (id)
      join worker_pools w on w.id = any (array[p.id]) and w.service_id = p_op.service and w.admin_status = 'enabled'
      left join lateral (
           select count(*) as held, count(*) filter (where k.runner_id = p_op.runner) as own from consumer_claims k
            where (w.max_total_claims is not null or w.max_concurrent_claims_per_runner is not null)
              and k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > v_now) x on true
     where (w.max_total_claims is null or x.held < w.max_total_claims)
       and (w.max_concurrent_claims_per_runner is null or x.own < w.max_concurrent_claims_per_runner);
    v_wakes := _wakes_waiting(p_op.service, p_op.runner, v_pools, 1);
    if v_wakes is null then
        -- A locked one may yet be left over: look again, and wait for it.
        select array_agg(x.wake_id) into v_wakes
          from (select n.wake_id, n.created_at from wake_notifications n
                 where n.target_runner_id = p_op.runner and n.service_id = p_op.service and n.resolved_at is null and n.claim_status = 'unclaimed'
                 union all
                select n.wake_id, n.created_at
                  from unnest(v_pools) p (id)
                 cross join lateral (select n.wake_id, n.created_at from wake_notifications n
                                      where n.target_pool_id = p.id and n.service_id = p_op.service and n.resolved_at is null and n.claim_status = 'unclaimed'
                                      order by n.created_at limit 1) n
                 order by created_at limit 1) x;
    end if;
    select c.id, n.wake_id into p_op.id, p_op.wake
      from wake_notifications n join consumers c on c.name = any (array[n.consumer_id]) and c.service_id = n.service_id
     where n.wake_id = v_wakes[1];
    p_op.op := case when p_op.id is null then 'nothing' else 'acquire' end;
    if p_wait then
        perform 1 from consumers c where c.id = p_op.id for update;
    else
        perform 1 from consumers c where c.id = p_op.id for update skip locked;
        p_op.busy := p_op.id is not null and not found;
    end if;
    return p_op;
end
$$;
comment on function rouse._claim_seek_pools(rouse.claim_op, text[], boolean, timestamptz) is 'Names and locks what waits for a runner or for its pools.';
