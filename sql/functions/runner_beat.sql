-- runner_beat: runner_heartbeat, and with it the pools whose active member the
-- runner is: [{"id", "wakeStream"}]; their wake streams are tailed beside its own.
create or replace function rouse.runner_beat(
    p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint,
    p_wake_stream_offset text, p_diagnostics jsonb
) returns table (outcome text, last_seen_at timestamptz, liveness_lease_expires_at timestamptz, lease_ms bigint,
                 wake_stream_offset text, diagnostics jsonb, redelivered integer, pools jsonb)
language sql
set search_path = rouse, pg_temp
as $$
    select h.*, case when h.outcome = 'ok' then coalesce((
               select jsonb_agg(jsonb_build_object('id', p.pool_id, 'wakeStream', p.wake_stream) order by p.pool_id)
                 from runner_pools(p_service_id, p_runner_id) p where p.status = 'active'), '[]') end
      from runner_heartbeat(p_service_id, p_runner_id, p_principal, p_trusted, p_lease_ms, p_wake_stream_offset, p_diagnostics) h
$$;
comment on function rouse.runner_beat(integer, text, text, boolean, bigint, text, jsonb) is 'Extends a runner''s liveness lease and names its pools.';
