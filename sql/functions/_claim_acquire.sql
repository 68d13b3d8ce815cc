-- _claim_acquire: the decision of an acquire, at a chosen time. The caller
-- holds the consumer's row lock and has read the clock after it. p_wake names
-- the wake that is claimed; null is a direct acquire, which takes whatever work
-- is pending. A wake for a runner is granted to the runner's owner only; any
-- other wake to whoever shows its claim token (p_proved). p_trusted passes
-- both. Outcomes: granted, repeated (same claim_id: the same answer
-- again), held, stale, no_work, stopped, paused, runner_mismatch, not_owner.
create or replace function rouse._claim_acquire(
    p_consumer rouse.consumers, p_wake uuid, p_holder text, p_runner text, p_claim_id text,
    p_trusted boolean, p_proved boolean, p_now timestamptz
) returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_c      consumers := p_consumer;
    v_a      claim_answer;
    v_lease  timestamptz;
    v_owner  text;
begin
    v_a.consumer_id := v_c.id;
    v_a.consumer_name := v_c.name;
    v_a.entity_url := v_c.entity_url;
    v_a.epoch := v_c.epoch;

    if v_c.state = 'claimed' then
        if v_c.lease_expires_at > p_now then
            v_a.holder := v_c.holder;
            v_a.runner_id := v_c.runner_id;
            v_a.lease_ms := ceil(extract(epoch from v_c.lease_expires_at - p_now) * 1000)::bigint;
            if p_claim_id is not null and p_claim_id = v_c.claim_id and p_holder = v_c.holder
               and (p_wake is null or p_wake = v_c.wake_id) then
                v_a.outcome := 'repeated';
                v_a.wake_id := v_c.wake_id;
                select n.notification_public, n.notification_public ->> 'streamPath' into v_a.notification, v_a.stream_path
                  from wake_notifications n where n.service_id = v_c.service_id and n.wake_id = v_c.wake_id;
                return v_a;
            end if;
            v_a.outcome := case when p_wake is null or p_wake = v_c.wake_id then 'held' else 'stale' end;
            return v_a;
        end if;
        v_a.minted := _claim_end(v_c, 'expired', 'The lease ended without a release.', null, 'lease_expired', p_now);
        select * into v_c from consumers c where c.id = v_c.id;
        v_a.epoch := v_c.epoch;
    elsif v_c.state = 'idle' and p_wake is null and not v_c.paused and _consumer_pending(v_c.id) then
        v_a.minted := _wake_mint(v_c, 'acquire', p_now);
        select * into v_c from consumers c where c.id = v_c.id;
        v_a.epoch := v_c.epoch;
    end if;

    if v_c.state = 'stopped' then
        v_a.outcome := 'stopped';
        return v_a;
    elsif v_c.paused then
        v_a.outcome := 'paused';
        return v_a;
    elsif v_c.state = 'idle' then
        v_a.outcome := case when p_wake is null then 'no_work' else 'stale' end;
        return v_a;
    elsif p_wake is not null and p_wake <> v_c.wake_id then
        v_a.outcome := 'stale';
        return v_a;
    end if;

    -- The state is waking, and the wake is the current one.
    if v_c.runner_id is not null then
        if p_runner is not null and p_runner <> v_c.runner_id then
            v_a.outcome := 'runner_mismatch';
            return v_a;
        end if;
        if not p_trusted then
            select r.owner_principal into v_owner from runners r where r.service_id = v_c.service_id and r.id = v_c.runner_id;
            if v_owner is distinct from p_holder then
                v_a.outcome := 'not_owner';
                return v_a;
            end if;
        end if;
    elsif p_runner is not null then
        v_a.outcome := 'runner_mismatch';
        return v_a;
    elsif not (p_trusted or p_proved) then
        v_a.outcome := 'not_owner';
        return v_a;
    end if;

    -- One statement writes all that a grant is, so that it costs one execution.
    v_lease := p_now + make_interval(secs => v_c.lease_ttl_ms / 1000.0);
    with taken as (
        update consumers c
           set state = 'claimed', holder = p_holder, claim_id = p_claim_id, claimed_at = p_now,
               lease_expires_at = v_lease, due_at = least(c.due_at, v_lease)
         where c.id = v_c.id
    ), told as (
        update wake_notifications n
           set claim_status = 'claimed', claimed_at = p_now, next_attempt_at = null,
               delivery_status = case when n.delivery_status = 'superseded' then n.delivery_status else 'delivered' end,
               delivered_at = coalesce(n.delivered_at, p_now)
         where n.wake_id = v_c.wake_id
        returning n.notification_public
    ), claimed as (
        insert into consumer_claims (service_id, consumer_id, epoch, wake_id, entity_url, stream_path, runner_id, holder, claim_id,
                status, claimed_at, last_heartbeat_at, lease_expires_at, updated_at)
        select v_c.service_id, v_c.name, v_c.epoch, v_c.wake_id, v_c.entity_url, t.notification_public ->> 'streamPath', v_c.runner_id,
               p_holder, p_claim_id, 'active', p_now, p_now, v_lease, p_now
          from told t
    ), shown as (
        update entity_dispatch_state d
           set outstanding_wake_id = null, outstanding_wake_target = null, outstanding_wake_created_at = null,
               active_consumer_id = v_c.name, active_runner_id = v_c.runner_id, active_epoch = v_c.epoch,
               active_claimed_at = p_now, active_lease_expires_at = v_lease, last_claimed_at = p_now, updated_at = p_now
         where d.service_id = v_c.service_id and d.entity_url = v_c.entity_url
    ), running as (
        update entities e set status = 'running', updated_at = p_now
         where e.service_id = v_c.service_id and e.url = v_c.entity_url and e.status in ('spawning', 'idle')
    )
    select t.notification_public, t.notification_public ->> 'streamPath' into v_a.notification, v_a.stream_path from told t;

    v_a.entity_status := case when v_c.entity_url is not null then 'running' end;
    v_a.outcome := 'granted';
    v_a.wake_id := v_c.wake_id;
    v_a.holder := p_holder;
    v_a.runner_id := v_c.runner_id;
    v_a.lease_ms := v_c.lease_ttl_ms;
    return v_a;
end
$$;
comment on function rouse._claim_acquire(rouse.consumers, uuid, text, text, text, boolean, boolean, timestamptz) is 'Decides an acquire on a locked consumer at a chosen time.';
