-- _dispatch_judge: what becomes at p_now of an entity's wake that nobody has
-- claimed, by its policy: park (given up, with a reason), move (to the target
-- p_index), or stay until due_at. The caller holds the consumer's row lock.
--
-- A wake is given up when work has waited longer than giveUp.afterMs without a
-- live claim, or when it was refused for good and nothing else is to be tried.
-- It moves on when its target is gone, has refused it for good (failed), or has
-- not claimed it in unclaimedAfterMs; and, to a target that would take it, when
-- its own is offline or full. From the last target that means a new round, which
-- begins 1 s later than it would, doubled with each round up to 60 s.
create or replace function rouse._dispatch_judge(
    p_consumer rouse.consumers, p_now timestamptz,
    out verdict text, out target integer, out reason text, out due_at timestamptz, out state text
)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_policy jsonb;
    v_count  integer;
    v_when   jsonb;
    v_last   boolean;
    v_wake   wake_notifications;
    v_wait   interval := interval '0';
    v_until  timestamptz;
    v_give   timestamptz;   -- when it is given up
    v_move   timestamptz;   -- when it moves on
    v_next   integer;
begin
    select e.dispatch_policy into v_policy from entities e where e.url = p_consumer.entity_url and e.service_id = p_consumer.service_id;
    select * into v_wake from wake_notifications n where n.wake_id = p_consumer.wake_id;
    v_count := coalesce(jsonb_array_length(v_policy -> 'targets'), 0);
    v_when := _target_when(v_policy, p_consumer.target_index);
    v_last := p_consumer.target_index >= v_count - 1;
    if v_last then
        v_wait := make_interval(secs => least(60, power(2, least((greatest(p_consumer.attempts, 1) - 1) / greatest(v_count, 1), 6))));
    end if;
    select s.state, s.alive_until into state, v_until from _target_state(p_consumer.service_id, v_wake.target, p_now) s;

    if v_policy #>> '{giveUp,afterMs}' is not null then
        select greatest(d.pending_since, d.last_released_at) + (v_policy #>> '{giveUp,afterMs}')::bigint * interval '1 ms' into v_give
          from entity_dispatch_state d where d.entity_url = p_consumer.entity_url and d.service_id = p_consumer.service_id;
    end if;
    if v_wake.delivery_status = 'failed' then
        if coalesce((v_when ->> 'failed')::boolean, false) then
            v_move := p_consumer.told_at + v_wait;
        elsif v_policy -> 'giveUp' is not null and v_give is null then
            v_give := p_now;
        end if;
    end if;
    v_move := least(v_move, v_wake.created_at + (v_when ->> 'unclaimedAfterMs')::bigint * interval '1 ms' + v_wait,
                    case when state = 'gone' then p_now end);

    if v_give <= p_now then
        verdict := 'park';
        reason := case when v_wake.delivery_status = 'failed' then 'delivery_failed' else 'unclaimed' end;
        return;
    end if;
    if v_move <= p_now then
        v_next := case when v_last then 0 else p_consumer.target_index + 1 end;
        target := _target_choose(p_service_id => p_consumer.service_id, p_policy => v_policy, p_from => v_next, p_now => p_now);
        if state <> 'gone' or (select s.state from _target_state(p_consumer.service_id, v_policy -> 'targets' -> target, p_now) s) <> 'gone' then
            verdict := 'move';
        else
            verdict := 'park';
            reason := 'no_target';
        end if;
        return;
    elsif state in ('offline', 'full') and (v_when ->> state)::boolean and (not v_last or v_wake.created_at + v_wait <= p_now) then
        v_next := _target_next(p_consumer.service_id, v_policy, case when v_last then 0 else p_consumer.target_index + 1 end, p_now);
        if v_next <> p_consumer.target_index then
            verdict := 'move';
            target := v_next;
            return;
        end if;
    end if;
    verdict := 'stay';
    due_at := least(v_give, v_move,
                    -- What would move it on may come about unseen: looked at as often as a wake is told.
                    p_now + p_consumer.wake_ttl_ms * interval '1 ms',
                    case when state in ('ok', 'full') and (v_when ->> 'offline')::boolean then v_until end);
end
$$;
comment on function rouse._dispatch_judge(rouse.consumers, timestamptz) is 'Whether a waiting wake stays, moves on or is given up, at a chosen time.';
