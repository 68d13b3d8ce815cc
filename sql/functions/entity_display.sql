-- entity_display: what a UI says about an entity (RFC "Entity and Runner
-- Observability"). A view, so that every reader says the same. "Pending" is
-- derived: an outstanding wake, or an actionable position beyond the acked one.
create or replace view rouse.entity_display as
select e.service_id, e.url, e.type, e.status,
       p.pending,
       t.target_type,
       r.id as runner_id,
       r.label as runner_label,
       case when r.id is null then null
            when l.online then 'online' else 'offline' end as runner_liveness,
       case when e.status in ('killed', 'stopped', 'stopping', 'paused', 'spawning') then e.status
            when e.status = 'running' then 'running'
            when p.pending and r.id is not null and not l.online then 'waiting_for_runner'
            when p.pending and r.id is not null then 'runner_syncing'
            when p.pending and t.target_type is null then 'no_target'
            when p.pending and f.failed then 'delivery_failed'
            when p.pending then 'delivering'
            when d.last_error is not null then 'failed'
            else 'waiting_for_input' end as code,
       case when e.status = 'killed' then 'Killed'
            when e.status = 'stopped' then 'Stopped'
            when e.status = 'stopping' then 'Stopping...'
            when e.status = 'paused' then 'Paused'
            when e.status = 'spawning' then 'Starting...'
            when e.status = 'running' and r.label is not null then 'Running on ' || r.label
            when e.status = 'running' then 'Running'
            when p.pending and r.id is not null and not l.online then 'Waiting for runner...'
            when p.pending and r.id is not null then 'Runner syncing pending work...'
            when p.pending and t.target_type is null then 'Waiting for a dispatch target'
            when p.pending and f.failed then 'Delivery failed — check its wakes'
            when p.pending then 'Delivering pending work...'
            when d.last_error is not null then 'Run failed — check logs'
            else 'Waiting for input' end as display
  from rouse.entities e
  left join rouse.entity_dispatch_state d on d.service_id = e.service_id and d.entity_url = e.url
 cross join lateral (select e.dispatch_policy -> 'targets' -> 0 ->> 'type' as target_type) t
  left join rouse.runners r on r.service_id = e.service_id
        and r.id = coalesce(d.active_runner_id, e.dispatch_policy -> 'targets' -> 0 ->> 'runnerId')
  left join rouse.runner_runtime_diagnostics g on g.service_id = r.service_id and g.runner_id = r.id
 cross join lateral (select r.admin_status = 'enabled' and coalesce(g.liveness_lease_expires_at > clock_timestamp(), false) as online) l
 cross join lateral (select d.outstanding_wake_id is not null or exists (
        select from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id
         where cs.consumer_id = e.consumer_id and s.actionable > cs.acked and s.path is not null) as pending) p
 cross join lateral (select exists (
        select from rouse.wake_notifications n where n.wake_id = d.outstanding_wake_id and n.delivery_status = 'failed') as failed) f;
comment on view rouse.entity_display is 'The one line a UI shows for an entity, with the facts it is made of.';
