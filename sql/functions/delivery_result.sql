-- _delivery_result, delivery_result: records how an attempt ended, at a chosen
-- time. accepted: the receiver will call back, so the lease runs and the same
-- wake is sent again if it does not. done: the receiver did the work; the wake
-- is acquired, its snapshot acked, and released, in this transaction. retry:
-- sent again after p_retry_ms, or after 1 s doubled by attempt up to 60 s.
-- permanent: this target never takes the wake; it stays open as failed, for a
-- person to redeliver. unknown: it may have arrived, and the receiver could not
-- tell it from a second one: the wake is not sent again by itself, but stays
-- open, may be claimed by whoever got it, and is a person's to redeliver.
-- p_retry_ms below zero with accepted: likewise never again by itself. An answer for a wake that has been claimed or resolved
-- meanwhile changes nothing but the attempt. Where the policy says that a wake
-- moves on when it failed, permanent, unknown and the eighth retry hand it to the
-- next target at once. Returns what became of the wake, also moved or parked.
create or replace function rouse._delivery_result(
    p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint,
    p_status_code integer, p_error text, p_now timestamptz
) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_n    wake_notifications;
    v_c    consumers;
    v_acks jsonb;
    v_act  record;
begin
    update delivery_attempts a
       set finished_at = p_now, outcome = p_outcome, status_code = p_status_code, error = left(p_error, 500)
     where a.service_id = p_service_id and a.wake_id = p_wake_id and a.attempt = p_attempt and a.finished_at is null;
    if not found then
        return 'repeated';
    end if;
    select * into v_n from wake_notifications n where n.service_id = p_service_id and n.wake_id = p_wake_id;
    select c.* into v_c from consumers c where c.service_id = p_service_id and c.name = v_n.consumer_id for update;
    -- The lock may have been waited for: what was read before it is old.
    select * into v_n from wake_notifications n where n.service_id = p_service_id and n.wake_id = p_wake_id;
    if v_c.wake_id is distinct from p_wake_id or v_n.resolved_at is not null then
        return 'resolved';
    end if;
    if v_c.kind = 'subscription' then
        update subscriptions s
           set status = x.status, last_error = case x.status when 'failed' then left(coalesce(p_error, 'HTTP ' || p_status_code, 'refused'), 500) end
          from (select case when p_outcome in ('accepted', 'done') then 'active' else 'failed' end as status) x
         where s.consumer_id = v_c.id and (s.status, s.last_error) is distinct from
               (x.status, case x.status when 'failed' then left(coalesce(p_error, 'HTTP ' || p_status_code, 'refused'), 500) end);
    end if;
    if p_outcome = 'done' then
        select jsonb_agg(jsonb_build_object('path', e ->> 'path', 'position',
                   greatest(ltrim(split_part(coalesce(e ->> 'offset', e ->> 'tail_offset'), '_', 2), '0'), '0')::bigint)) into v_acks
          from jsonb_array_elements(v_n.notification_public -> 'streams') e;
        -- A receiver may have acked further through the callback already. What has gone is nobody's work, and what has
        -- come since under the same name was not told of.
        select jsonb_agg(jsonb_build_object('path', a.path, 'position', greatest(a.position, cs.acked))) into v_acks
          from jsonb_to_recordset(v_acks) as a (path text, position bigint)
          join streams s on s.service_id = p_service_id and s.path = ltrim(a.path, '/') and s.created_at <= v_n.created_at
          join consumer_streams cs on cs.consumer_id = v_c.id and cs.stream_id = s.id;
        -- A claim by the callback stands; else the transport takes the wake itself.
        select (a.answer).outcome into p_outcome from _claim_apply(jsonb_build_array(
            jsonb_build_object('op', 'acquire', 'service', p_service_id, 'id', v_c.id, 'wake', p_wake_id,
                               'holder', 'transport:' || v_n.target_type, 'trusted', true),
            jsonb_build_object('op', 'release', 'service', p_service_id, 'id', v_c.id, 'epoch', v_n.epoch, 'wake', p_wake_id, 'acks', v_acks)),
            true, p_now) a where a.ord = 2;
        return p_outcome;
    end if;
    if v_c.state = 'claimed' then
        return 'claimed';
    elsif p_attempt < v_n.attempts and p_outcome <> 'permanent' then
        -- A later attempt is under way: its loan decides what comes next.
        return 'repeated';
    end if;
    if p_outcome in ('permanent', 'unknown') or p_outcome = 'retry' and p_attempt >= 8 and v_c.routed and coalesce((
           select (_target_when(e.dispatch_policy, v_c.target_index) ->> 'failed')::boolean from entities e
            where e.url = v_c.entity_url and e.service_id = v_c.service_id), false) then
        update wake_notifications n set delivery_status = 'failed', next_attempt_at = null
         where n.service_id = p_service_id and n.wake_id = p_wake_id;
        update entity_dispatch_state d set last_error = 'delivery: ' || coalesce(left(p_error, 200), case p_outcome when 'unknown' then 'it may or may not have arrived' else 'refused for good' end), updated_at = p_now
         where d.service_id = p_service_id and d.entity_url = v_n.entity_url;
        if v_c.routed then
            update consumers c set told_at = p_now where c.id = v_c.id returning * into v_c;
            select * into v_act from _dispatch_act(v_c, p_now);
            if v_act.wake is not null then
                perform _wake_publish(array[v_act.wake], p_now);
            end if;
            if v_act.acted <> 'stays' then
                return v_act.acted;
            end if;
        end if;
        return case p_outcome when 'unknown' then 'unknown' else 'failed' end;
    elsif p_outcome = 'accepted' then
        update wake_notifications n
           set delivery_status = 'delivered', delivered_at = coalesce(n.delivered_at, p_now),
               next_attempt_at = case when p_retry_ms >= 0 then p_now + make_interval(secs => v_c.lease_ttl_ms / 1000.0) end
         where n.service_id = p_service_id and n.wake_id = p_wake_id;
        return 'delivered';
    end if;
    update wake_notifications n
       set next_attempt_at = p_now + make_interval(secs =>
               coalesce(nullif(p_retry_ms, 0) / 1000.0, least(60, power(2, least(p_attempt - 1, 10)))))
     where n.service_id = p_service_id and n.wake_id = p_wake_id;
    return 'retry';
end
$$;
comment on function rouse._delivery_result(integer, uuid, integer, text, bigint, integer, text, timestamptz) is 'Records how a delivery attempt ended, at a chosen time.';

create or replace function rouse.delivery_result(
    p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint, p_status_code integer, p_error text
) returns text
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '5s'
as $$
begin
    -- Lock first, so that the clock is read after any wait.
    perform 1 from consumers c
       join wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name
      where n.service_id = p_service_id and n.wake_id = p_wake_id for update of c;
    return _delivery_result(p_service_id, p_wake_id, p_attempt, p_outcome, p_retry_ms, p_status_code, p_error, clock_timestamp());
end
$$;
comment on function rouse.delivery_result(integer, uuid, integer, text, bigint, integer, text) is 'Records how a delivery attempt ended.';
