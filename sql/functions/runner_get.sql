-- runner_get: a runner with its derived facts: liveness by its heartbeat lease
-- and the claims it holds now, which the server knows and no runner reports.
create or replace function rouse.runner_get(p_service_id integer, p_id text)
returns table (runner rouse.runners, diagnostics rouse.runner_runtime_diagnostics, lease_remaining_ms bigint, active_claims jsonb)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    return query
    select r, g,
           ceil(extract(epoch from g.liveness_lease_expires_at - clock_timestamp()) * 1000)::bigint,
           coalesce((select jsonb_agg(jsonb_build_object(
                        'entity_url', k.entity_url, 'consumer_id', k.consumer_id, 'epoch', k.epoch, 'wake_id', k.wake_id,
                        'claimed_at', k.claimed_at, 'lease_expires_at', k.lease_expires_at) order by k.claimed_at, k.consumer_id)
                       from consumer_claims k
                      where k.service_id = r.service_id and k.runner_id = r.id and k.status = 'active'
                        and k.lease_expires_at > clock_timestamp()), '[]')
      from runners r
      left join runner_runtime_diagnostics g on g.service_id = r.service_id and g.runner_id = r.id
     where r.service_id = p_service_id and r.id = p_id;
end
$$;
comment on function rouse.runner_get(integer, text) is 'A runner with its liveness and active claims.';
