-- entity_display: what a UI says about an entity (RFC "Entity and Runner
-- Observability"). A view, so that every reader says the same. "Pending" is
-- derived: an outstanding wake, or an actionable position beyond the acked one.
-- A pool that has as many live claims as it, or all its members, may is waited for, whether anybody was refused or not.
-- target_type and target_index are of the outstanding wake, or of the first
-- target of the policy; attempt counts the wakes since progress.
create or replace view rouse.entity_display as
select e.service_id, e.url, e.type, e.status,
       p.pending,
       t.target ->> 'type' as target_type,
       r.id as runner_id,
       r.label as runner_label,
       case when r.id is null then null
            when l.online then 'online' else 'offline' end as runner_liveness,
       k.code,
       case k.code
            when 'killed' then 'Killed'
            when 'stopped' then 'Stopped'
            when 'stopping' then 'Stopping...'
            when 'paused' then 'Paused'
            when 'spawning' then 'Starting...'
            when 'parked' then 'Parked — ' || case c.parked_reason
                when 'attempts_exhausted' then case c.attempts when 1 then 'tried once' else 'tried ' || c.attempts || ' times' end
                when 'unclaimed' then 'nobody took it in time'
                when 'delivery_failed' then 'it could not be delivered'
                when 'no_target' then 'its target is gone'
                else c.parked_reason end || '; redrive it'
            when 'moving' then 'Moving to ' || coalesce(
                (select x.label from rouse.runners x where x.id = e.dispatch_policy -> 'targets' -> 0 ->> 'runnerId' and x.service_id = e.service_id),
                (select x.name from rouse.worker_pools x where x.id = e.dispatch_policy -> 'targets' -> 0 ->> 'workerPoolId' and x.service_id = e.service_id),
                e.dispatch_policy -> 'targets' -> 0 ->> 'type', 'nobody') || '...'
            when 'running' then 'Running' || coalesce(' on ' || r.label, '')
            when 'waiting_for_pool' then 'Waiting for a runner of ' || w.name || '...'
            when 'waiting_for_capacity' then 'Waiting for capacity of ' || w.name || '...'
            when 'waiting_for_runner' then 'Waiting for runner...'
            when 'runner_syncing' then 'Runner syncing pending work...'
            when 'no_target' then 'Waiting for a dispatch target'
            when 'delivery_failed' then 'Delivery failed — check its wakes'
            when 'delivering' then 'Delivering pending work...'
            when 'failed' then 'Run failed — check logs'
            when 'waiting_for_input' then 'Waiting for input' end as display,
       w.id as pool_id,
       w.name as pool_name,
       case when c.state = 'waking' then c.target_index else 0 end as target_index,
       c.attempts as attempt,
       c.parked_at,
       c.parked_reason,
       c.release_by
  from rouse.entities e
  left join rouse.consumers c on c.id = e.consumer_id
  left join rouse.entity_dispatch_state d on d.service_id = e.service_id and d.entity_url = e.url
 cross join lateral (select coalesce(d.outstanding_wake_target, e.dispatch_policy -> 'targets' -> 0) as target) t
  left join rouse.runners r on r.service_id = e.service_id
        and r.id = coalesce(d.active_runner_id, t.target ->> 'runnerId')
  left join rouse.runner_runtime_diagnostics g on g.service_id = r.service_id and g.runner_id = r.id
  left join rouse.worker_pools w on w.service_id = e.service_id
        and w.id = coalesce(c.pool_id, t.target ->> 'workerPoolId')
 cross join lateral (select r.admin_status = 'enabled' and coalesce(g.liveness_lease_expires_at > clock_timestamp(), false) as online) l
 cross join lateral (select d.outstanding_wake_id is not null or exists (
        select from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id
         where cs.consumer_id = e.consumer_id and s.actionable > cs.acked and s.path is not null) as pending) p
 cross join lateral (select exists (
        select from rouse.wake_notifications n where n.wake_id = d.outstanding_wake_id and n.delivery_status = 'failed') as failed) f
 cross join lateral (select w.admin_status = 'enabled' and exists (
        select from rouse.worker_pool_members b
          join rouse.runners q on q.id = b.runner_id and q.service_id = b.service_id and q.admin_status = 'enabled'
          join rouse.runner_runtime_diagnostics h on h.runner_id = b.runner_id and h.service_id = b.service_id
         where b.pool_id = w.id and b.service_id = w.service_id and b.status = 'active' and h.liveness_lease_expires_at > clock_timestamp()) as online) m
  left join lateral (
        select count(*) >= least(w.max_total_claims, case when w.max_concurrent_claims_per_runner is not null then
               w.max_concurrent_claims_per_runner * (select count(*) from rouse.worker_pool_members b
                where b.pool_id = w.id and b.service_id = w.service_id and b.status = 'active') end) as used
          from rouse.consumer_claims k
         where k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > clock_timestamp()
           and (w.max_total_claims is not null or w.max_concurrent_claims_per_runner is not null)) u on p.pending and e.status <> 'running' and w.id is not null
 cross join lateral (select
       case when e.status in ('killed', 'stopped', 'stopping', 'paused', 'spawning') then e.status
            when c.parked_at is not null then 'parked'
            when c.release_by is not null then 'moving'
            when e.status = 'running' then 'running'
            when p.pending and w.id is not null and not m.online then 'waiting_for_pool'
            when p.pending and w.id is not null and (c.look_at is not null or u.used) then 'waiting_for_capacity'
            when p.pending and w.id is not null then 'runner_syncing'
            when p.pending and r.id is not null and not l.online then 'waiting_for_runner'
            when p.pending and r.id is not null then 'runner_syncing'
            when p.pending and t.target is null then 'no_target'
            when p.pending and f.failed then 'delivery_failed'
            when p.pending then 'delivering'
            when d.last_error is not null then 'failed'
            else 'waiting_for_input' end as code) k;
comment on view rouse.entity_display is 'The one line a UI shows for an entity, with the facts it is made of.';
