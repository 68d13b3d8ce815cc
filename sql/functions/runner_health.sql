-- runner_health: what dispatch holds for a runner: entities it has claimed,
-- entities whose wake it has not claimed yet, and how long the oldest waits.
create or replace function rouse.runner_health(p_service_id integer, p_id text)
returns table (active bigint, outstanding bigint, oldest_outstanding_ms bigint)
language sql stable
set search_path = rouse, pg_temp
as $$
    select (select count(*) from consumer_claims k
             where k.service_id = p_service_id and k.runner_id = p_id and k.status = 'active' and k.lease_expires_at > clock_timestamp()),
           count(n.wake_id),
           floor(extract(epoch from clock_timestamp() - min(n.created_at)) * 1000)::bigint
      from wake_notifications n
     where n.service_id = p_service_id and n.target_runner_id = p_id and n.resolved_at is null and n.claim_status = 'unclaimed'
$$;
comment on function rouse.runner_health(integer, text) is 'What dispatch holds for a runner.';
