-- _wake_mint: the one place that makes a wake. The caller holds the consumer's
-- row lock, has read the clock after it, and has seen that the consumer is
-- idle, not paused, and has pending work. The wake takes the next epoch; it is
-- published by _wake_publish in the same transaction. Returns the wake's id,
-- or null when no target can be told.
create or replace function rouse._wake_mint(p_consumer rouse.consumers, p_reason text, p_now timestamptz) returns uuid
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_wake    uuid := gen_random_uuid();
    v_target  jsonb;
    v_type    text;
    v_runner  text;
    v_stream  text;
    v_public  jsonb;
    v_push    boolean;
begin
    -- One target today; an ordered list chooses here.
    select e.dispatch_policy -> 'targets' -> 0 into v_target
      from entities e where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url;
    v_type := v_target ->> 'type';
    if v_type is null then
        return null;
    end if;
    if v_type = 'runner' then
        v_runner := v_target ->> 'runnerId';
        select r.wake_stream into v_stream from runners r where r.service_id = p_consumer.service_id and r.id = v_runner;
        if not found then
            return null;
        end if;
    end if;
    v_push := v_type <> 'runner';
    v_public := _wake_notification(p_consumer, v_wake, p_consumer.epoch + 1, p_reason);

    update consumers c
       set state = 'waking', epoch = p_consumer.epoch + 1, wake_id = v_wake, runner_id = v_runner,
           holder = null, claim_id = null, claimed_at = null, lease_expires_at = null,
           told_at = p_now,
           -- A push transport's schedule lives in wake_notifications.next_attempt_at.
           due_at = least(c.due_at, case when v_push then 'infinity'::timestamptz
                                         else p_now + make_interval(secs => c.wake_ttl_ms / 1000.0) end)
     where c.id = p_consumer.id;

    insert into wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target_runner_id,
            target_webhook_url, target, runner_wake_stream, notification_public, next_attempt_at, created_at)
    values (p_consumer.service_id, v_wake, p_consumer.name, p_consumer.epoch + 1, p_consumer.entity_url, v_type, v_runner,
            v_target ->> 'url', v_target, v_stream, v_public, case when v_push then p_now end, p_now);

    update entity_dispatch_state d
       set outstanding_wake_id = v_wake, outstanding_wake_target = v_target, outstanding_wake_created_at = p_now,
           last_wake_id = v_wake,
           pending_source_streams = v_public -> 'streams', pending_reason = p_reason,
           pending_since = coalesce(d.pending_since, p_now),
           active_consumer_id = null, active_runner_id = null, active_epoch = null,
           active_claimed_at = null, active_lease_expires_at = null,
           updated_at = p_now
     where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
    return v_wake;
end
$$;
comment on function rouse._wake_mint(rouse.consumers, text, timestamptz) is 'Makes the next wake of an idle consumer under its row lock.';
