-- claim_apply: a batch of mutex calls in one transaction, answered in order.
-- Without p_wait no row is waited for: a contended member answers busy and is
-- sent again alone with p_wait. Wakes minted by members are published last, so
-- that wake streams are locked after every consumer.
create or replace function rouse.claim_apply(p_ops jsonb, p_wait boolean)
returns table (ord integer, answer rouse.claim_answer)
language plpgsql
set search_path = rouse, pg_temp
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
        answer := _claim_op(v_op, p_wait);
        if answer.minted is not null then
            v_services := v_services || (v_op ->> 'service')::integer;
            v_wakes := v_wakes || answer.minted;
        end if;
        return next;
    end loop;
    perform _wake_publish(v_services, v_wakes, clock_timestamp());
end
$$;
comment on function rouse.claim_apply(jsonb, boolean) is 'A batch of acquire, heartbeat, ack and release calls in one transaction.';
