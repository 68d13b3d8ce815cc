-- _claim_op: one mutex call of a batch: finds the consumer, locks it, reads the
-- clock after the lock, and decides. Leaves minted wakes to its caller.
--
-- Members of p_op: op (acquire, heartbeat, ack, release), service; one of id,
-- consumer (name), path (of the consumer's stream), wake (uuid) to find it;
-- epoch, wake; holder, runner, claim_id; trusted (the caller may hold anything),
-- proved (the caller showed this wake's claim token); acks; error.
-- Beside the outcomes of the four decisions: not_found, busy (only without
-- p_wait), runner_not_found, runner_disabled, runner_full, not_owner.
create or replace function rouse._claim_op(p_op jsonb, p_wait boolean) returns rouse.claim_answer
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
    v_runner   runners;
    v_trusted  boolean := coalesce((p_op ->> 'trusted')::boolean, false);
    v_held     bigint;
begin
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
    elsif p_op ->> 'op' = 'acquire' and p_op ? 'runner' then
        -- Nothing named: the oldest wake that waits for this runner.
        select c.id into v_id from wake_notifications n
          join consumers c on c.service_id = n.service_id and c.name = n.consumer_id
         where n.service_id = v_service and n.target_runner_id = p_op ->> 'runner'
           and n.resolved_at is null and n.claim_status = 'unclaimed'
         order by n.created_at limit 1;
        if v_id is null then
            v_a.outcome := 'no_work';
        end if;
    end if;

    if p_op ->> 'op' = 'acquire' and p_op ? 'runner' then
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
        elsif v_runner.capacity is not null and v_id is not null then
            -- The runner's row serialises the count of its claims.
            if p_wait then
                perform 1 from runners r where r.service_id = v_service and r.id = v_runner.id for no key update;
            else
                perform 1 from runners r where r.service_id = v_service and r.id = v_runner.id for no key update skip locked;
                if not found then
                    v_a.outcome := 'busy';
                    return v_a;
                end if;
            end if;
            select count(*) into v_held from consumers c
             where c.service_id = v_service and c.runner_id = v_runner.id and c.state = 'claimed';
            if v_held >= v_runner.capacity and not exists (
                    select from consumers c where c.id = v_id and c.state = 'claimed' and c.claim_id = p_op ->> 'claim_id') then
                v_a.outcome := 'runner_full';
                return v_a;
            end if;
        end if;
    end if;

    if v_id is null then
        v_a.outcome := coalesce(v_a.outcome, 'not_found');
        return v_a;
    end if;

    v_c := _consumer_lock(v_id, p_wait);
    if v_c.id is null then
        v_a.outcome := case when p_wait then 'not_found' else 'busy' end;
        return v_a;
    end if;

    return case p_op ->> 'op'
        when 'acquire' then _claim_acquire(v_c, v_wake, p_op ->> 'holder', p_op ->> 'runner', p_op ->> 'claim_id',
                                       v_trusted, coalesce((p_op ->> 'proved')::boolean, false), clock_timestamp())
        when 'heartbeat' then _claim_heartbeat(v_c, v_epoch, v_wake, clock_timestamp())
        when 'ack' then _claim_ack(v_c, v_epoch, v_wake, coalesce(p_op -> 'acks', '[]'), clock_timestamp())
        when 'release' then _claim_release(v_c, v_epoch, v_wake, coalesce(p_op -> 'acks', '[]'), p_op ->> 'error', clock_timestamp())
    end;
end
$$;
comment on function rouse._claim_op(jsonb, boolean) is 'One mutex call: find, lock, read the clock, decide.';
