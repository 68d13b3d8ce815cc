-- runner_get: a runner with its derived facts: liveness by its heartbeat lease
-- and the claims it holds now, which the server knows and no runner reports.
create or replace function rouse.runner_get(p_service_id integer, p_id text)
returns table (runner rouse.runners, diagnostics rouse.runner_runtime_diagnostics, lease_remaining_ms bigint, active_claims jsonb)
language sql stable
set search_path = rouse, pg_temp
as $$
    select r, g,
           ceil(extract(epoch from g.liveness_lease_expires_at - clock_timestamp()) * 1000)::bigint,
           coalesce((select jsonb_agg(jsonb_build_object(
                        'entity_url', c.entity_url, 'consumer_id', c.name, 'epoch', c.epoch, 'wake_id', c.wake_id,
                        'claimed_at', c.claimed_at, 'lease_expires_at', c.lease_expires_at) order by c.claimed_at, c.id)
                       from consumers c
                      where c.service_id = r.service_id and c.runner_id = r.id and c.state = 'claimed'
                        and c.lease_expires_at > clock_timestamp()), '[]')
      from runners r
      left join runner_runtime_diagnostics g on g.service_id = r.service_id and g.runner_id = r.id
     where r.service_id = p_service_id and r.id = p_id
$$;
comment on function rouse.runner_get(integer, text) is 'A runner with its liveness and active claims.';
