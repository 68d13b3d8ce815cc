-- _claim_reap, claim_reap: looks at consumers that are due, at a chosen time.
-- A lapsed lease ends (status expired) and mints the next wake; a lease that
-- was extended meanwhile moves its due time; a runner's wake that nobody
-- claimed is delivered again, the same wake, while the runner is online and
-- enabled, after a time that doubles with each telling beyond the third, up to
-- 32 times the first. Rows that somebody else holds are passed over until the next round.
create or replace function rouse._claim_reap(p_limit integer, p_now timestamptz)
returns table (expired integer, redelivered integer, moved integer)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_c        consumers;
    v_wake     uuid;
    v_wait     interval;
    v_services integer[] := '{}';
    v_wakes    uuid[] := '{}';
begin
    expired := 0; redelivered := 0; moved := 0;
    for v_c in
        select * from consumers c where c.due_at <= p_now order by c.due_at limit p_limit for update skip locked
    loop
        if v_c.state = 'claimed' and v_c.lease_expires_at <= p_now then
            v_wake := _claim_end(v_c, 'expired', 'The lease ended without a release.', null, 'lease_expired', p_now);
            expired := expired + 1;
            if v_wake is not null then
                v_services := v_services || v_c.service_id;
                v_wakes := v_wakes || v_wake;
            end if;
        elsif v_c.state = 'claimed' then
            update consumers c set due_at = v_c.lease_expires_at where c.id = v_c.id;
            moved := moved + 1;
        elsif v_c.state <> 'waking' then
            update consumers c set due_at = null where c.id = v_c.id;
            moved := moved + 1;
        elsif v_c.runner_id is null then
            -- A push transport's schedule lives in wake_notifications.
            update consumers c set due_at = 'infinity' where c.id = v_c.id;
            moved := moved + 1;
        else
            select make_interval(secs => v_c.wake_ttl_ms / 1000.0 * (1 << least(greatest(n.attempts - 3, 0), 5))) into v_wait
              from wake_notifications n where n.wake_id = v_c.wake_id;
            if v_c.told_at + v_wait > p_now then
                update consumers c set due_at = v_c.told_at + v_wait where c.id = v_c.id;
                moved := moved + 1;
                continue;
            end if;
            update consumers c set told_at = p_now, due_at = p_now + make_interval(secs => c.wake_ttl_ms / 1000.0) where c.id = v_c.id;
            if exists (select from runner_runtime_diagnostics d join runners r on r.service_id = d.service_id and r.id = d.runner_id
                        where d.service_id = v_c.service_id and d.runner_id = v_c.runner_id and d.liveness_lease_expires_at > p_now
                          and r.admin_status = 'enabled') then
                redelivered := redelivered + 1;
                v_services := v_services || v_c.service_id;
                v_wakes := v_wakes || v_c.wake_id;
            else
                moved := moved + 1;
            end if;
        end if;
    end loop;
    perform _wake_publish(v_services, v_wakes, p_now);
    return next;
end
$$;
comment on function rouse._claim_reap(integer, timestamptz) is 'Ends lapsed claims and redelivers unclaimed wakes at a chosen time.';

create or replace function rouse.claim_reap(p_limit integer)
returns table (expired integer, redelivered integer, moved integer)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select * from _claim_reap(p_limit, clock_timestamp())
$$;
comment on function rouse.claim_reap(integer) is 'Ends lapsed claims and redelivers unclaimed wakes.';
