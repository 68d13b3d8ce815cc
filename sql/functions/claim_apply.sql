-- _claim_apply, claim_apply: a batch of mutex calls in one transaction, answered
-- in order. Without p_wait no row is waited for: a contended member answers busy
-- and is sent again alone with p_wait. Wakes minted by members are published
-- last, so that wake streams are locked after every consumer. p_now is the
-- chosen time of a test; null reads the clock after each lock.
create or replace function rouse._claim_apply(p_ops jsonb, p_wait boolean, p_now timestamptz)
returns table (ord integer, answer rouse.claim_answer)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '5s'
as $$
declare
    v_op       jsonb;
    v_services integer[] := '{}';
    v_wakes    uuid[] := '{}';
begin
    ord := 0;
    for v_op in select jsonb_array_elements(p_ops) loop
        ord := ord + 1;
        answer := _claim_op(v_op, p_wait, p_now);
        if answer.minted is not null then
            v_services := v_services || (v_op ->> 'service')::integer;
            v_wakes := v_wakes || answer.minted;
        end if;
        return next;
    end loop;
    perform _wake_publish(v_services, v_wakes, coalesce(p_now, clock_timestamp()));
end
$$;
comment on function rouse._claim_apply(jsonb, boolean, timestamptz) is 'claim_apply at a chosen time, for tests.';

create or replace function rouse.claim_apply(p_ops jsonb, p_wait boolean)
returns table (ord integer, answer rouse.claim_answer)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _claim_apply(p_ops, p_wait, null);
end
$$;
comment on function rouse.claim_apply(jsonb, boolean) is 'A batch of acquire, heartbeat, ack and release calls in one transaction.';
