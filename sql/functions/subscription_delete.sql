-- subscription_delete: ends a subscription at once: its claim, its wake, its name.
-- Its links go in bounded steps, the first of them here, the others by
-- subscription_tidy. False when there is none.
create or replace function rouse.subscription_delete(p_service integer, p_id text, p_principal text) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_id bigint;
    v_c  consumers;
begin
    select s.consumer_id into v_id from subscriptions s where s.id = p_id and s.service_id = p_service;
    if not found then
        return false;
    end if;
    -- Consumers come first; whoever waited here may find it gone.
    select * into v_c from consumers c where c.id = v_id for update;
    delete from subscriptions s where s.consumer_id = v_id;
    if not found then
        return false;
    end if;
    perform _consumer_stop(v_id, clock_timestamp());
    delete from subscription_globs g where g.consumer_id = v_id;
    delete from subscription_paths p where p.consumer_id = v_id;
    insert into subscription_removals (consumer_id) values (v_id);
    perform audit_add(p_service, p_principal, 'subscription.delete', '/__ds/subscriptions/' || p_id, null);
    return true;
end
$$;
comment on function rouse.subscription_delete(integer, text, text) is 'Ends a subscription.';
