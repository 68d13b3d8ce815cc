-- _claim_write: carries out verdicts on consumers whose rows the caller has
-- locked, one statement a kind of effect:
-- grants, heartbeats, cursors, acks, ends, and wakes where work is left. An
-- entity that was asked to stop while it ran stops when its claim ends. Returns
-- the wakes it has minted and those that now have room, for the caller to
-- publish, or null.
-- An entity's stream that is locked by somebody else keeps its pending flag,
-- which is only the scan's hint: nothing is waited for.
create or replace function rouse._claim_write(p_verdicts rouse.claim_verdict[], p_now timestamptz) returns uuid[]
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_effects text[] := array(select distinct v.effect from unnest(p_verdicts) v);
    v_close   bigint[];
    v_ids     bigint[];
    v_reasons text[];
    v_freed   jsonb;
    v_wakes   uuid[];
    v_made    uuid[];
    v_woken   bigint[];
begin
    if 'grant' = any (v_effects) then
        with taken as (
            update consumers c
               set state = 'claimed', holder = v.holder, claim_id = v.claim_id, claimed_at = p_now,
                   lease_expires_at = p_now + c.lease_ttl_ms * interval '1 ms', release_by = null, look_at = null,
                   -- Of a pool's wake only the grant says whose it is.
                   runner_id = coalesce(v.runner, c.runner_id),
                   due_at = least(c.due_at, p_now + c.lease_ttl_ms * interval '1 ms')
              from unnest(p_verdicts) v
             where v.effect = 'grant' and c.id = any (array[v.id])
            returning c.service_id, c.name, c.entity_url, c.epoch, c.wake_id, c.runner_id, c.pool_id, c.holder, c.claim_id, c.lease_expires_at
        ), told as (
            update wake_notifications n
               set claim_status = 'claimed', claimed_at = p_now, next_attempt_at = null,
                   delivery_status = case when n.delivery_status = 'superseded' then n.delivery_status else 'delivered' end,
                   delivered_at = coalesce(n.delivered_at, p_now)
              from taken t
             where n.wake_id = any (array[t.wake_id])
            returning t.*, n.notification_public ->> 'streamPath' as stream_path
        ), shown as (
            update entity_dispatch_state d
               set outstanding_wake_id = null, outstanding_wake_target = null, outstanding_wake_created_at = null,
                   active_consumer_id = t.name, active_runner_id = t.runner_id, active_epoch = t.epoch,
                   active_claimed_at = p_now, active_lease_expires_at = t.lease_expires_at, last_claimed_at = p_now, updated_at = p_now
              from taken t
             where d.entity_url = any (array[t.entity_url]) and d.service_id = t.service_id
        ), running as (
            update entities e set status = 'running', updated_at = p_now
              from taken t
             where e.url = any (array[t.entity_url]) and e.service_id = t.service_id and e.status in ('spawning', 'idle')
        )
        insert into consumer_claims (service_id, consumer_id, epoch, wake_id, entity_url, stream_path, runner_id, holder, claim_id,
                status, claimed_at, last_heartbeat_at, lease_expires_at, updated_at, pool_id)
        select t.service_id, t.name, t.epoch, t.wake_id, t.entity_url, t.stream_path, t.runner_id, t.holder, t.claim_id,
               'active', p_now, p_now, t.lease_expires_at, p_now, t.pool_id
          from told t;
    end if;

    if 'full' = any (v_effects) then
        -- What was refused for want of room may have seen a count that is old by now: claim_reap looks again.
        update consumers c
           set look_at = p_now + interval '1 s', due_at = least(c.due_at, p_now + interval '1 s')
          from unnest(p_verdicts) v
         where v.effect = 'full' and c.id = any (array[v.id]) and c.state = 'waking' and (c.look_at is null or c.look_at > p_now + interval '1 s');
    end if;

    if 'beat' = any (v_effects) then
        with beaten as (
            -- Never beyond a handover's deadline, nor beyond what can be given now: the clock may have been set back.
            update consumers c
               set lease_expires_at = least(greatest(c.lease_expires_at, least(p_now + c.lease_ttl_ms * interval '1 ms', c.release_by)),
                                            p_now + c.lease_ttl_ms * interval '1 ms'),
                   -- claim_reap looks then; it moves by itself to a lease that is longer.
                   due_at = least(c.due_at, p_now + c.lease_ttl_ms * interval '1 ms')
              from unnest(p_verdicts) v
             where v.effect = 'beat' and c.id = any (array[v.id])
            returning c.service_id, c.name, c.entity_url, c.epoch, c.lease_expires_at
        ), claimed as (
            update consumer_claims k set last_heartbeat_at = p_now, lease_expires_at = b.lease_expires_at, updated_at = p_now
              from beaten b
             where k.consumer_id = any (array[b.name]) and k.epoch = b.epoch and k.service_id = b.service_id
        )
        update entity_dispatch_state d set active_lease_expires_at = b.lease_expires_at, updated_at = p_now
          from beaten b
         where d.entity_url = any (array[b.entity_url]) and d.service_id = b.service_id;
    end if;

    if v_effects && array['ack', 'end'] then
        with moved as materialized (
            select v.id, x.stream, max(x.position) as position
              from unnest(p_verdicts) v cross join unnest(v.streams, v.positions) x (stream, position)
             where v.effect in ('ack', 'end') group by v.id, x.stream
        ), acked as (
            -- The caller holds the row locks of streams that a subscription watches: nothing is appended to them meanwhile.
            update consumer_streams cs
               set acked = m.position, behind = cs.behind and exists (select from streams s where s.id = any (array[cs.stream_id]) and s.tail > m.position)
              from moved m
             where cs.consumer_id = any (array[m.id]) and cs.stream_id = any (array[m.stream]) and cs.acked < m.position
        ), free as materialized (
            select s.id, m.position from moved m
             cross join lateral (select s.id from streams s
                                  where s.id = m.stream and s.pending and s.consumer_id = m.id and s.actionable <= m.position for no key update skip locked) s
        )
        update streams s set pending = false from free f where s.id = any (array[f.id]) and s.actionable <= f.position;
    end if;

    if 'ack' = any (v_effects) then
        with noted as (
            update consumer_claims k set acked_streams = v.acked, updated_at = p_now
              from unnest(p_verdicts) v join consumers c on c.id = any (array[v.id])
             where v.effect = 'ack' and k.consumer_id = any (array[c.name]) and k.epoch = c.epoch and k.service_id = c.service_id
        )
        update entity_dispatch_state d
           set pending_source_streams = '[]', pending_reason = null, pending_since = null, updated_at = p_now
          from unnest(p_verdicts) v join consumers c on c.id = any (array[v.id])
         where v.effect = 'ack' and not v.pending and d.entity_url = any (array[c.entity_url]) and d.service_id = c.service_id;
    end if;

    if 'end' = any (v_effects) then
        with ending as materialized (
            select c.id, c.service_id, c.name, c.entity_url, c.epoch, c.wake_id, c.runner_id, c.pool_id, v.status, v.error, v.acked, v.pending, v.next_wake, v.entity_status,
                   -- Progress: it ended well, or its cursor is not where the wake found it.
                   v.status = 'released' or not v.pending or c.entity_url is null or m.moved as progress,
                   -- A receiver that ends its claims and leaves everything as it was is told later each time (_fruitless_wait).
                   v.pending and v.status <> 'expired' and c.runner_id is null and c.pool_id is null and not m.moved as fruitless,
                   -- Whether a limit may have been in somebody's way.
                   case when c.runner_id is not null then coalesce(
                        (select true from runners q where q.id = c.runner_id and q.service_id = c.service_id and q.capacity is not null),
                        case when c.pool_id is not null then _pool_limited(c.service_id, c.pool_id) end) end as tight
              from unnest(p_verdicts) v join consumers c on c.id = any (array[v.id])
             cross join lateral (
                   select case when not v.pending or v.status = 'released' and (c.runner_id is not null or c.pool_id is not null) then true
                               else _claim_moved(c, v.streams) end as moved) m
             where v.effect = 'end'
        ), idle as (
            update consumers c
               set state = 'idle', wake_id = null, holder = null, runner_id = null, claim_id = null, claimed_at = null, lease_expires_at = null,
                   pool_id = null, release_by = null,
                   attempts = case when x.progress then 0 else c.attempts end, target_index = case when x.progress then 0 else c.target_index end,
                   fruitless = case when x.fruitless then least(c.fruitless + 1, 30) else 0 end
              from ending x
             where c.id = any (array[x.id])
        ), resolved as (
            update wake_notifications n
               set claim_status = case when x.status = 'expired' then 'expired' else 'completed' end, resolved_at = p_now, next_attempt_at = null
              from ending x
             where n.wake_id = any (array[x.wake_id])
        ), shown as (
            update entity_dispatch_state d
               set active_consumer_id = null, active_runner_id = null, active_epoch = null,
                   active_claimed_at = null, active_lease_expires_at = null,
                   pending_source_streams = case when x.pending then d.pending_source_streams else '[]' end,
                   pending_reason = case when x.pending then d.pending_reason end,
                   pending_since = case when x.pending then d.pending_since end,
                   last_released_at = p_now,
                   last_completed_at = case when x.status = 'released' then p_now else d.last_completed_at end,
                   last_error = case x.status when 'released' then null
                                              when 'failed' then coalesce(x.error, 'The run failed.')
                                              else d.last_error end,
                   updated_at = p_now
              from ending x
             where d.entity_url = any (array[x.entity_url]) and d.service_id = x.service_id
        ), rested as (
            update entities e set status = x.entity_status, updated_at = p_now
              from ending x
             where e.url = any (array[x.entity_url]) and e.service_id = x.service_id and e.status <> x.entity_status
        ), ended as (
            update consumer_claims k
               set status = x.status, released_at = p_now, error = x.error, next_wake = x.next_wake,
                   acked_streams = coalesce(x.acked, k.acked_streams), updated_at = p_now
              from ending x
             where k.consumer_id = any (array[x.name]) and k.epoch = x.epoch and k.service_id = x.service_id
        )
        select array_agg(x.id) filter (where x.next_wake is not null and x.entity_status = 'stopped'),
               jsonb_agg(jsonb_build_object('service', x.service_id, 'runner', x.runner_id, 'pool', x.pool_id)) filter (where x.tight)
          into v_close, v_freed
          from ending x;
        if v_freed is not null then
            v_wakes := _room_tell(v_freed, p_now);
        end if;
        if v_close is not null then
            perform _entity_close(c, p_now) from consumers c where c.id = any (v_close);
        end if;
    end if;

    if v_effects && array['end', 'mint'] then
        select array_agg(v.id), array_agg(case when v.effect = 'mint' then 'acquire' when v.status = 'expired' then 'lease_expired' else 'release' end)
          into v_ids, v_reasons
          from unnest(p_verdicts) v where v.effect = 'mint' or v.effect = 'end' and v.next_wake;
        if v_ids is not null then
            select array_agg(w.wake_id), array_agg(w.consumer_id) into v_made, v_woken from _wake_mint(v_ids, v_reasons, p_now) w;
            v_wakes := v_wakes || v_made;
            if cardinality(v_ids) > coalesce(cardinality(v_woken), 0) then
                -- Given up, or nobody can be told: a release that is repeated answers what came of it.
                update consumer_claims k set next_wake = false
                  from unnest(p_verdicts) v join consumers c on c.id = any (array[v.id])
                 where v.effect = 'end' and v.next_wake and v.id <> all (coalesce(v_woken, '{}'))
                   and k.consumer_id = any (array[c.name]) and k.epoch = c.epoch and k.service_id = c.service_id;
            end if;
        end if;
    end if;
    return v_wakes;
end
$$;
comment on function rouse._claim_write(rouse.claim_verdict[], timestamptz) is 'Carries out verdicts on locked consumers at a chosen time.';
