-- _claim_op: one mutex call of a batch: finds the consumer, locks it, reads the
-- clock after the lock (or takes p_now, a test's), and decides. Leaves minted
-- wakes to its caller.
--
-- Members of p_op: op (acquire, heartbeat, ack, release), service; one of id,
-- consumer (name), path (of the consumer's stream), wake (uuid) to find it, and
-- where several are given they must agree; epoch, wake; holder, runner,
-- claim_id; trusted (the caller may hold anything), proved (the caller showed
-- this wake's claim token); acks; error.
-- Beside the outcomes of the four decisions: not_found, busy (only without
-- p_wait), runner_not_found, runner_disabled, runner_full, not_owner,
-- not_holder (a claim token where a taker's own is needed),
-- wrong_consumer (id and consumer disagree) and wrong_wake (the wake was never
-- this consumer's).
-- Locks in order: consumer, its runner (only to count claims), its streams.
create or replace function rouse._claim_op(p_op jsonb, p_wait boolean, p_now timestamptz) returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_a        claim_answer;
    v_c        consumers;
    v_id       bigint;
    v_service  integer := (p_op ->> 'service')::integer;
    v_wake     uuid    := (p_op ->> 'wake')::uuid;
    v_epoch    bigint  := (p_op ->> 'epoch')::bigint;
    v_acquire  boolean := p_op ->> 'op' = 'acquire';
    v_runner   runners;
    v_target   text;
    v_trusted  boolean := coalesce((p_op ->> 'trusted')::boolean, false);
    v_now      timestamptz;
begin
    if v_acquire and p_op ? 'runner' then
        select * into v_runner from runners r where r.service_id = v_service and r.id = p_op ->> 'runner';
        if not found then
            v_a.outcome := 'runner_not_found';
            return v_a;
        elsif not v_trusted and v_runner.owner_principal is distinct from p_op ->> 'holder' then
            v_a.outcome := 'not_owner';
            return v_a;
        elsif v_runner.admin_status <> 'enabled' then
            v_a.outcome := 'runner_disabled';
            return v_a;
        end if;
    end if;

    if p_op ? 'id' then
        v_id := (p_op ->> 'id')::bigint;
    elsif p_op ? 'path' then
        select s.consumer_id into v_id from streams s where s.service_id = v_service and s.path = ltrim(p_op ->> 'path', '/');
    elsif p_op ? 'consumer' then
        select c.id into v_id from consumers c where c.service_id = v_service and c.name = p_op ->> 'consumer';
    elsif v_wake is not null then
        select c.id into v_id from wake_notifications n
          join consumers c on c.service_id = n.service_id and c.name = n.consumer_id
         where n.service_id = v_service and n.wake_id = v_wake;
    elsif v_acquire and p_op ? 'runner' then
        -- Nothing named. The attempt may have been granted already; else it is
        -- for the oldest wake that waits for this runner and that nobody else
        -- is taking at this moment.
        select c.id, c.wake_id into v_id, v_wake from consumer_claims k
          join consumers c on c.service_id = k.service_id and c.name = k.consumer_id and c.epoch = k.epoch
         where k.service_id = v_service and k.runner_id = p_op ->> 'runner' and k.status = 'active'
           and c.state = 'claimed' and c.claim_id = p_op ->> 'claim_id' and c.lease_expires_at > coalesce(p_now, clock_timestamp());
        if v_id is null then
            select c.id, n.wake_id into v_id, v_wake from wake_notifications n
              join consumers c on c.service_id = n.service_id and c.name = n.consumer_id and c.wake_id = n.wake_id
             where n.service_id = v_service and n.target_runner_id = p_op ->> 'runner'
               and n.resolved_at is null and n.claim_status = 'unclaimed' and c.state = 'waking'
             order by n.created_at limit 1 for update of c skip locked;
        end if;
        if v_id is null then
            -- A locked one may yet be left over: look again, and wait for it.
            select c.id, n.wake_id into v_id, v_wake from wake_notifications n
              join consumers c on c.service_id = n.service_id and c.name = n.consumer_id
             where n.service_id = v_service and n.target_runner_id = p_op ->> 'runner'
               and n.resolved_at is null and n.claim_status = 'unclaimed'
             order by n.created_at limit 1;
        end if;
        if v_id is null then
            v_a.outcome := 'no_work';
            return v_a;
        end if;
    end if;
    if v_id is null then
        v_a.outcome := 'not_found';
        return v_a;
    end if;

    -- Written out here: a call of a function costs several times the lock.
    if p_wait then
        select * into v_c from consumers c where c.id = v_id for update;
    else
        select * into v_c from consumers c where c.id = v_id for update skip locked;
    end if;
    if v_c.id is null then
        v_a.outcome := case when p_wait then 'not_found' else 'busy' end;
        return v_a;
    elsif v_c.service_id <> v_service then
        v_a.outcome := 'not_found';
        return v_a;
    elsif p_op ? 'consumer' and v_c.name <> p_op ->> 'consumer' then
        v_a.outcome := 'wrong_consumer';
        return v_a;
    end if;
    v_now := coalesce(p_now, clock_timestamp());

    if v_acquire then
        v_a.consumer_id := v_c.id;
        v_a.consumer_name := v_c.name;
        v_a.epoch := v_c.epoch;
        if v_wake is null and v_epoch is not null then
            -- An epoch alone names the wake it was minted with.
            select n.wake_id into v_wake from wake_notifications n
             where n.service_id = v_service and n.consumer_id = v_c.name and n.entity_url is not distinct from v_c.entity_url
               and n.epoch = v_epoch;
            if not found then
                v_a.outcome := 'stale';
                return v_a;
            end if;
        elsif v_wake is distinct from v_c.wake_id and v_wake is not null then
            if not exists (select from wake_notifications n
                            where n.service_id = v_service and n.wake_id = v_wake and n.consumer_id = v_c.name
                              and n.epoch = coalesce(v_epoch, n.epoch)) then
                v_a.outcome := 'wrong_wake';
                return v_a;
            end if;
        elsif v_epoch <> v_c.epoch then
            v_a.outcome := 'wrong_wake';
            return v_a;
        end if;

        -- Only a grant has to look at the runner it would go to, by whatever
        -- route it is asked for.
        if v_c.state in ('idle', 'waking') or v_c.state = 'claimed' and v_c.lease_expires_at <= v_now then
            v_target := coalesce(v_c.runner_id, (
                select e.dispatch_policy -> 'targets' -> 0 ->> 'runnerId' from entities e
                 where e.service_id = v_service and e.url = v_c.entity_url));
        end if;
        if v_target is not null and v_target = coalesce(p_op ->> 'runner', v_target) then
            select * into v_runner from runners r where r.service_id = v_service and r.id = v_target;
            if not v_trusted and v_runner.owner_principal is distinct from p_op ->> 'holder' then
                null; -- refused below, whatever state the runner is in
            elsif v_runner.admin_status <> 'enabled' then
                v_a.outcome := 'runner_disabled';
                return v_a;
            elsif v_runner.capacity is not null then
                -- The runner's row serialises the count of its claims.
                if p_wait then
                    perform 1 from runners r where r.service_id = v_service and r.id = v_target for no key update;
                else
                    perform 1 from runners r where r.service_id = v_service and r.id = v_target for no key update skip locked;
                    if not found then
                        v_a.outcome := 'busy';
                        return v_a;
                    end if;
                end if;
                v_now := coalesce(p_now, clock_timestamp());
                if v_runner.capacity <= (select count(*) from consumer_claims k
                        where k.service_id = v_service and k.runner_id = v_target and k.status = 'active'
                          and k.consumer_id <> v_c.name and k.lease_expires_at > v_now) then
                    v_a.outcome := 'runner_full';
                    return v_a;
                end if;
            end if;
        end if;
        return _claim_acquire(v_c, v_wake, p_op ->> 'holder', p_op ->> 'runner', p_op ->> 'claim_id',
                              v_trusted, coalesce((p_op ->> 'proved')::boolean, false), v_now);
    end if;

    if coalesce((p_op ->> 'proved')::boolean, false) and v_c.runner_id is not null then
        -- Everybody who reads a wake stream has its claim tokens: there only
        -- the taker's own token speaks for the claim.
        v_a.outcome := 'not_holder';
        return v_a;
    end if;
    return case p_op ->> 'op'
        when 'heartbeat' then _claim_heartbeat(v_c, v_epoch, v_wake, v_now)
        when 'ack' then _claim_ack(v_c, v_epoch, v_wake, coalesce(p_op -> 'acks', '[]'), v_now, p_wait)
        when 'release' then _claim_release(v_c, v_epoch, v_wake, coalesce(p_op -> 'acks', '[]'), p_op ->> 'error', v_now, p_wait)
    end;
end
$$;
comment on function rouse._claim_op(jsonb, boolean, timestamptz) is 'One mutex call: find, lock, read the clock, decide.';
