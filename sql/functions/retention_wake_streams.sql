-- _retention_wake_streams, retention_wake_streams: one step of the compaction of
-- runners' and pools' wake streams: looks at up to p_limit of them, at each once
-- every p_period_ms. An entry goes when it is older than p_window_ms, below the
-- cursor of whoever reads the stream, and not the last telling of an open wake.
-- A runner's cursor is the offset it reports with its heartbeats. One that
-- reports none, or was not seen for the window, holds nothing back: what goes
-- above its cursor is of wakes that are over or were told again behind it.
-- Members of a pool report no cursor for the pool's stream, so there the window
-- alone counts. trimmed says how many streams got another head; more that the
-- walk is not at its end.
create or replace function rouse._retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint, p_now timestamptz)
returns table (seen integer, trimmed integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_walk text;
    v_at   text;
    v_to   bigint;
    v_n    integer;
    v_until timestamptz := clock_timestamp() + interval '1 s';
    r      record;
begin
    seen := 0; trimmed := 0; more := false;
    foreach v_walk in array array['wake_streams', 'pool_streams'] loop
        select w into v_at from _retention_walk(v_walk, p_period_ms, v_now) w;
        continue when not found;
        v_n := 0;
        for r in
            select x.id, x.service_id, x.key, s.id as stream_id, s.head, d.pin
              from _retention_readers(v_walk, v_at, p_limit) x
              left join lateral (select t.id, t.head from streams t
                                  where t.service_id = x.service_id and t.path = x.path and t.kind = 'wake' limit 1) s on true
              left join lateral (select d.wake_stream_offset as pin from runner_runtime_diagnostics d
                                  where v_walk = 'wake_streams' and d.runner_id = x.id and d.service_id = x.service_id
                                    and d.last_seen_at > v_now - p_window_ms * interval '1 ms' limit 1) d on true
             order by x.id, x.service_id
        loop
            if trimmed = 5 or v_n > 0 and clock_timestamp() > v_until then
                more := true;
                exit;
            end if;
            v_n := v_n + 1;
            v_at := r.key;
            continue when r.stream_id is null;
            v_to := _retention_mark(r.stream_id, p_window_ms, p_now);
            if v_to is not null and r.pin is not null then
                v_to := least(v_to, case when r.pin ~ '^\d{16}_\d{16}$' then split_part(r.pin, '_', 2)::bigint when r.pin = '-1' then 0 end);
            end if;
            if v_to > r.head and exists (select from _stream_trim(r.stream_id, v_to, false, false, v_now) t where t.outcome = 'trimmed') then
                trimmed := trimmed + 1;
                -- Their locks are held until the end of the step, which is soon: wakes wait for them.
                v_until := least(v_until, clock_timestamp() + interval '50 ms');
            end if;
        end loop;
        seen := seen + v_n;
        more := more or v_n = p_limit;
        perform _retention_walked(v_walk, case when more then v_at end, v_now);
        exit when more;
    end loop;
    return next;
end
$$;
comment on function rouse._retention_wake_streams(integer, bigint, bigint, timestamptz) is 'retention_wake_streams at a chosen time.';

create or replace function rouse.retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint)
returns table (seen integer, trimmed integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_wake_streams(p_limit, p_window_ms, p_period_ms, null)
$$;
comment on function rouse.retention_wake_streams(integer, bigint, bigint) is 'One step of the compaction of wake streams.';
