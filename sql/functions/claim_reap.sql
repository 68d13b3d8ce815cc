-- _claim_reap, claim_reap: looks at consumers that are due, at a chosen time.
-- A lapsed lease ends (status expired) and mints the next wake; a lease that
-- was extended meanwhile moves its due time; a runner's or pool's wake that nobody
-- claimed is delivered again, the same wake, while the runner, or a member, is online and
-- enabled, after a time that doubles with each telling beyond the third, up to
-- 32 times the first; one for a pool, or refused for want of room, once there is room.
-- A wake of a policy with more to it than one target, or of a pool that is gone,
-- moves on or is given up as _dispatch_judge finds; moved counts those too.
-- Rows that somebody else holds are passed over until the next round.
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
    v_routed bigint[];
    v_acted  record;
    v_told   integer := 0;
    v_c      consumers;
begin
    expired := 0;
    select array_agg(c.id) into v_due
      from (select c.id from consumers c where c.due_at <= p_now order by c.due_at limit p_limit for update skip locked) c;
    select jsonb_agg(jsonb_build_object('op', 'expire', 'service', c.service_id, 'id', c.id)) filter (where c.state = 'claimed' and c.lease_expires_at <= p_now),
           array_agg(c.id) filter (where c.state <> 'claimed' and not x.routed or c.lease_expires_at > p_now),
           array_agg(c.id order by c.id) filter (where x.routed)
      into v_lapsed, v_due, v_routed
      from consumers c
     cross join lateral (select c.state = 'waking' and (c.routed or c.pool_id is not null and not exists (
                                select from worker_pools w where w.id = any (array[c.pool_id]) and w.service_id = c.service_id)) as routed) x
     where c.id = any (v_due);
    if v_lapsed is not null then
        select count(*) filter (where (a.answer).outcome = 'lease_expired') into expired from _claim_apply(v_lapsed, false, p_now) a;
    end if;

    foreach v_c.id in array coalesce(v_routed, '{}') loop
        select * into v_c from consumers c where c.id = v_c.id;
        select * into v_acted from _dispatch_act(v_c, p_now);
        if v_acted.wake is not null then
            v_again := v_again || v_acted.wake;
        end if;
        v_told := v_told + (v_acted.acted = 'stays' and v_acted.wake is not null)::integer;
    end loop;

    with due as materialized (
        select c.id, c.service_id, c.runner_id, c.pool_id, c.wake_id, x.again <= p_now as tell, c.look_at,
               case when x.again <= p_now and (c.pool_id is not null or c.look_at is not null)
                    then (select s.state from wake_notifications n cross join lateral _target_state(n.service_id, n.target, p_now) s where n.wake_id = c.wake_id) end as state,
               case when c.state = 'claimed' then c.lease_expires_at
                    when c.state <> 'waking' then null
                    -- A push transport's schedule lives in wake_notifications.
                    when c.runner_id is null and c.pool_id is null then 'infinity'
                    when x.again > p_now then x.again
                    else p_now + c.wake_ttl_ms * interval '1 ms' end as due_at
          from consumers c
         cross join lateral (select case when c.state <> 'waking' or c.runner_id is null and c.pool_id is null then null
                                         when c.look_at is not null then c.look_at
                                         else c.told_at + c.wake_ttl_ms * interval '1 ms' * (
                             select 1 << least(greatest(n.attempts - 3, 0), 5) from wake_notifications n where n.wake_id = c.wake_id) end as again) x
         where c.id = any (v_due)
    ), seen as (
        update consumers c
           set due_at = d.due_at, told_at = case when d.tell and (d.look_at is null or d.state = 'ok') then p_now else c.told_at end,
               look_at = case when not d.tell then c.look_at
                              when d.state <> 'ok' and c.look_at is not null then p_now + c.wake_ttl_ms * interval '1 ms' end
          from due d where c.id = any (array[d.id])
    ), again as (
        select d.wake_id from due d
          join runner_runtime_diagnostics g on g.runner_id = any (array[d.runner_id]) and g.service_id = d.service_id
          join runners r on r.id = any (array[d.runner_id]) and r.service_id = d.service_id
         where d.tell and d.look_at is null and g.liveness_lease_expires_at > p_now and r.admin_status = 'enabled'
         union all
        select d.wake_id from due d where d.tell and d.state = 'ok'
    )
    select v_again || array_agg(a.wake_id), v_told + count(*) into v_again, redelivered from again a;
    moved := coalesce(cardinality(v_due), 0) + coalesce(cardinality(v_routed), 0) - redelivered;
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
