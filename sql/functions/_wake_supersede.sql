-- _wake_supersede: takes back the outstanding wake of a locked consumer and
-- leaves it idle. Its epoch stays spent. Returns the row after.
create or replace function rouse._wake_supersede(p_consumer rouse.consumers, p_now timestamptz) returns rouse.consumers
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_after consumers;
begin
    update wake_notifications n
       set delivery_status = 'superseded', resolved_at = p_now, next_attempt_at = null
     where n.service_id = p_consumer.service_id and n.wake_id = p_consumer.wake_id;
    update entity_dispatch_state d
       set outstanding_wake_id = null, outstanding_wake_target = null, outstanding_wake_created_at = null, updated_at = p_now
     where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
    update consumers c
       set state = 'idle', wake_id = null, runner_id = null, pool_id = null
     where c.id = p_consumer.id
    returning * into v_after;
    return v_after;
end
$$;
comment on function rouse._wake_supersede(rouse.consumers, timestamptz) is 'Takes back an outstanding wake.';
