-- _wake_mint: the one place that makes wakes. The caller holds the consumers'
-- row locks, has read the clock after that, and has seen that each is idle, not
-- paused, and has pending work. A wake takes the next epoch (the first behind a
-- failover takes it higher up, _epoch_floor); it is published by
-- _wake_publish in the same transaction. Returns the wakes made; a consumer
-- whose target cannot be told gets none.
--
-- notification_public is the one payload every transport carries (RFC "Wake
-- notification shape"), without its tokens and its callback, which the gateway
-- adds when it serves it. attempt counts the wakes since progress, targetIndex
-- says which target of the policy it is for: of several the first that would
-- take it, from the consumer's target_index on (_target_choose). Each stream's offset is the end of the newest message
-- that asks for work, which is the tail unless a holder wrote behind it and went
-- without acking: runtimes look for their trigger from that offset on.
-- ackedOffset is where unread work begins. Subscriptions among the consumers
-- are _wake_mint_subscriptions' part; entities alone cost nothing more. An
-- entity whose policy gives up after as many wakes as were made is parked instead.
create or replace function rouse._wake_mint(p_consumers bigint[], p_reasons text[], p_now timestamptz)
returns table (consumer_id bigint, wake_id uuid)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
declare
    v_floor bigint := _epoch_floor();
    v_made  integer;
    v_told  integer;
begin
    return query
    with made as materialized (
        select c.id, c.service_id, c.name, greatest(c.epoch + 1, v_floor) as epoch, c.entity_url, c.wake_ttl_ms * interval '1 ms' as ttl, m.reason, t.target, t.type,
               t.index, t.routed, c.attempts + 1 as attempt, m.wake_id, r.id as runner_id, case when w.wake_stream is not null then t.target ->> 'workerPoolId' end as pool_id,
               coalesce(r.wake_stream, w.wake_stream) as wake_stream, u.streams, c.fruitless,
               case when t.routed then _route_due(c.service_id, c.entity_url, e.dispatch_policy, t.index, c.attempts + 1, p_now) end as due_at,
               jsonb_build_object(
                   'consumerId', c.name, 'epoch', greatest(c.epoch + 1, v_floor), 'wakeId', m.wake_id,
                   'streamPath', '/' || u.path, 'streams', coalesce(u.streams, '[]'), 'triggeredBy', jsonb_build_array('/' || u.path),
                   'triggerEvent', m.reason, 'attempt', c.attempts + 1, 'targetIndex', t.index,
                   'entity', jsonb_build_object(
                       'type', e.type, 'status', e.status, 'url', e.url,
                       'streams', jsonb_build_object('main', e.url || '/main', 'error', e.url || '/error'),
                       'tags', e.tags, 'spawnArgs', e.spawn_args, 'createdBy', e.created_by)
                       || case when e.sandbox is null then '{}' else jsonb_build_object('sandbox', e.sandbox) end) as notification
          from (select u.id, u.reason, gen_random_uuid() as wake_id from unnest(p_consumers, p_reasons) u (id, reason)) m
          join consumers c on c.id = any (array[m.id])
          join entities e on e.url = any (array[c.entity_url]) and e.service_id = c.service_id
          -- One target and nothing else costs no look at it.
         cross join lateral (
               select x.target, x.target ->> 'type' as type, x.index, x.routed
                 from (select e.dispatch_policy -> 'targets' -> i.index as target, i.index, i.routed
                         from (select case when p.routed then _target_choose(c.service_id, e.dispatch_policy, c.target_index, p_now) else 0 end as index, p.routed
                                 from (select coalesce(e.dispatch_policy -> 'targets' -> 1 is not null or e.dispatch_policy ? 'giveUp'
                                                       or e.dispatch_policy -> 'targets' -> 0 ? 'when', false) as routed) p offset 0) i offset 0) x) t
          left join lateral (select r.id, r.wake_stream from runners r
                              where t.type = 'runner' and r.service_id = c.service_id and r.id = t.target ->> 'runnerId' limit 1) r on true
         cross join lateral (select case when t.type = 'worker-pool' then _pool_stream(c.service_id, t.target ->> 'workerPoolId') end as wake_stream offset 0) w
         cross join lateral (
               select min(s.path) as path, jsonb_agg(jsonb_build_object('path', '/' || s.path, 'offset', _offset(case when s.actionable > cs.acked then s.actionable else s.tail end),
                                                                        'ackedOffset', _offset(cs.acked)) order by s.path) as streams
                 from consumer_streams cs join streams s on s.id = any (array[cs.stream_id])
                where cs.consumer_id = c.id and s.path is not null) u
         where (t.type not in ('runner', 'worker-pool') or r.id is not null or w.wake_stream is not null)
           and not coalesce(c.attempts >= (e.dispatch_policy #>> '{giveUp,attempts}')::integer, false)
    ), waking as (
        update consumers c
           set state = 'waking', epoch = m.epoch, wake_id = m.wake_id, runner_id = m.runner_id, pool_id = m.pool_id,
               target_index = m.index, attempts = m.attempt, routed = m.routed, look_at = null,
               holder = null, claim_id = null, claimed_at = null, lease_expires_at = null, told_at = p_now,
               -- A push transport's schedule lives in wake_notifications.next_attempt_at.
               due_at = least(c.due_at, m.due_at, case when m.runner_id is null and m.pool_id is null then 'infinity' else p_now + m.ttl end)
          from made m
         where c.id = any (array[m.id])
    ), shown as (
        update entity_dispatch_state d
           set outstanding_wake_id = m.wake_id, outstanding_wake_target = m.target, outstanding_wake_created_at = p_now,
               last_wake_id = m.wake_id,
               pending_source_streams = coalesce(m.streams, '[]'), pending_reason = m.reason, pending_since = coalesce(d.pending_since, p_now),
               active_consumer_id = null, active_runner_id = null, active_epoch = null,
               active_claimed_at = null, active_lease_expires_at = null,
               updated_at = p_now
          from made m
         where d.entity_url = any (array[m.entity_url]) and d.service_id = m.service_id
    ), queued as (
        insert into wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target_runner_id,
                target_webhook_url, target, runner_wake_stream, notification_public, next_attempt_at, created_at,
                target_pool_id, target_index, attempt)
        select m.service_id, m.wake_id, m.name, m.epoch, m.entity_url, m.type, m.runner_id,
               m.target ->> 'url', m.target, m.wake_stream, m.notification, case when m.runner_id is null and m.pool_id is null then p_now + _fruitless_wait(m.fruitless) end, p_now,
               m.pool_id, m.index, m.attempt
          from made m
    )
    select m.id, m.wake_id from made m;
    get diagnostics v_made = row_count;
    if v_made < cardinality(p_consumers) then
        return query select s.consumer_id, s.wake_id from _wake_mint_subscriptions(p_consumers, p_reasons, p_now) s;
        get diagnostics v_told = row_count;
        if v_made + v_told < cardinality(p_consumers) then
            perform _wake_unminted(p_consumers, p_now);
        end if;
    end if;
end
$$;
comment on function rouse._wake_mint(bigint[], text[], timestamptz) is 'Makes the next wake of idle consumers under their row locks.';
