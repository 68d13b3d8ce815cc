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
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_due    bigint[];
    v_lapsed jsonb;
    v_again  uuid[];
begin
    expired := 0;
    select array_agg(c.id) into v_due
      from (select c.id from consumers c where c.due_at <= p_now order by c.due_at limit p_limit for update skip locked) c;
    select jsonb_agg(jsonb_build_object('op', 'expire', 'service', c.service_id, 'id', c.id)) filter (where c.state = 'claimed' and c.lease_expires_at <= p_now),
           array_agg(c.id) filter (where c.state <> 'claimed' or c.lease_expires_at > p_now)
      into v_lapsed, v_due
      from consumers c where c.id = any (v_due);
    if v_lapsed is not null then
        select count(*) filter (where (a.answer).outcome = 'lease_expired') into expired from _claim_apply(v_lapsed, false, p_now) a;
    end if;

    with due as materialized (
        select c.id, c.service_id, c.runner_id, c.wake_id, x.again <= p_now as tell,
               case when c.state = 'claimed' then c.lease_expires_at
                    when c.state <> 'waking' then null
                    -- A push transport's schedule lives in wake_notifications.
                    when c.runner_id is null then 'infinity'
                    when x.again > p_now then x.again
                    else p_now + c.wake_ttl_ms * interval '1 ms' end as due_at
          from consumers c
         cross join lateral (select case when c.state = 'waking' and c.runner_id is not null
                                         then c.told_at + c.wake_ttl_ms * interval '1 ms' * (
                             select 1 << least(greatest(n.attempts - 3, 0), 5) from wake_notifications n where n.wake_id = c.wake_id) end as again) x
         where c.id = any (v_due)
    ), seen as (
        update consumers c set due_at = d.due_at, told_at = case when d.tell then p_now else c.told_at end
          from due d where c.id = any (array[d.id])
    )
    select array_agg(d.wake_id) into v_again
      from due d
      join runner_runtime_diagnostics g on g.runner_id = any (array[d.runner_id]) and g.service_id = d.service_id
      join runners r on r.id = any (array[d.runner_id]) and r.service_id = d.service_id
     where d.tell and g.liveness_lease_expires_at > p_now and r.admin_status = 'enabled';
    redelivered := coalesce(cardinality(v_again), 0);
    moved := coalesce(cardinality(v_due), 0) - redelivered;
    if v_again is not null then
        perform _wake_publish(v_again, p_now);
    end if;
    return next;
end
$$;
comment on function rouse._claim_reap(integer, timestamptz) is 'Ends lapsed claims and redelivers unclaimed wakes at a chosen time.';

create or replace function rouse.claim_reap(p_limit integer)
returns table (expired integer, redelivered integer, moved integer)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
    select * from _claim_reap(p_limit, clock_timestamp())
$$;
comment on function rouse.claim_reap(integer) is 'Ends lapsed claims and redelivers unclaimed wakes.';
