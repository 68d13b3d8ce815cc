-- _runner_heartbeat, runner_heartbeat: extends a runner's liveness lease (RFC
-- "Runner liveness heartbeat"), at a chosen time. Writes the diagnostics row,
-- never the registration. A runner that comes back online is told again of
-- every wake that waits for it: same wakes, same epochs. One that will be gone
-- earlier than it had said has what waits for it looked at then. Null arguments leave
-- what is there. Outcomes: ok, not_found, not_owner.
create or replace function rouse._runner_heartbeat(
    p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint,
    p_wake_stream_offset text, p_diagnostics jsonb, p_now timestamptz
) returns table (outcome text, last_seen_at timestamptz, liveness_lease_expires_at timestamptz, lease_ms bigint,
                 wake_stream_offset text, diagnostics jsonb, redelivered integer)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_runner runners;
    v_d      runner_runtime_diagnostics;
    v_was    timestamptz;
    v_lease  bigint := least(greatest(coalesce(p_lease_ms, 90000), 1000), 3600000);
begin
    redelivered := 0;
    select * into v_runner from runners r where r.service_id = p_service_id and r.id = p_runner_id;
    if not found then
        outcome := 'not_found';
        return next;
        return;
    elsif not p_trusted and v_runner.owner_principal <> p_principal then
        outcome := 'not_owner';
        return next;
        return;
    end if;
    select d.liveness_lease_expires_at into v_was from runner_runtime_diagnostics d
     where d.service_id = p_service_id and d.runner_id = p_runner_id;

    insert into runner_runtime_diagnostics as d (service_id, runner_id, owner_principal, wake_stream_offset, last_seen_at,
            liveness_lease_expires_at, diagnostics, updated_at)
    values (p_service_id, p_runner_id, v_runner.owner_principal, p_wake_stream_offset, p_now,
            p_now + make_interval(secs => v_lease / 1000.0), p_diagnostics, p_now)
    on conflict (service_id, runner_id) do update
       set owner_principal = excluded.owner_principal,
           wake_stream_offset = coalesce(excluded.wake_stream_offset, d.wake_stream_offset),
           last_seen_at = excluded.last_seen_at,
           liveness_lease_expires_at = excluded.liveness_lease_expires_at,
           diagnostics = coalesce(excluded.diagnostics, d.diagnostics),
           updated_at = excluded.updated_at
    returning * into v_d;

    if v_was is null or v_was <= p_now then
        redelivered := _runner_tell(p_service_id, p_runner_id, p_now);
    elsif v_was > v_d.liveness_lease_expires_at then
        perform _target_left(p_service_id, p_runner_id, array(select m.pool_id from worker_pool_members m where m.runner_id = p_runner_id and m.service_id = p_service_id and m.status = 'active'),
            v_d.liveness_lease_expires_at);
    end if;
    outcome := 'ok';
    last_seen_at := v_d.last_seen_at;
    liveness_lease_expires_at := v_d.liveness_lease_expires_at;
    lease_ms := v_lease;
    wake_stream_offset := v_d.wake_stream_offset;
    diagnostics := v_d.diagnostics;
    return next;
end
$$;
comment on function rouse._runner_heartbeat(integer, text, text, boolean, bigint, text, jsonb, timestamptz) is 'Extends a runner''s liveness lease at a chosen time.';

create or replace function rouse.runner_heartbeat(
    p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint,
    p_wake_stream_offset text, p_diagnostics jsonb
) returns table (outcome text, last_seen_at timestamptz, liveness_lease_expires_at timestamptz, lease_ms bigint,
                 wake_stream_offset text, diagnostics jsonb, redelivered integer)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    -- Lock first, so that the clock is read after any wait and no heartbeat
    -- moves the lease back.
    perform 1 from runner_runtime_diagnostics d where d.service_id = p_service_id and d.runner_id = p_runner_id for update;
    return query select * from _runner_heartbeat(p_service_id, p_runner_id, p_principal, p_trusted, p_lease_ms,
                                                 p_wake_stream_offset, p_diagnostics, clock_timestamp());
end
$$;
comment on function rouse.runner_heartbeat(integer, text, text, boolean, bigint, text, jsonb) is 'Extends a runner''s liveness lease.';
