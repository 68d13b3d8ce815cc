-- _claim_end: ends the live claim of a consumer whose row the caller has
-- locked, and leaves the mutex idle. p_status is released, expired or failed.
-- The wake that carried the claim is resolved with it. Returns the row after.
create or replace function rouse._claim_end(p_consumer rouse.consumers, p_status text, p_error text, p_now timestamptz)
returns rouse.consumers
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_after consumers;
begin
    update consumers c
       set state = 'idle', wake_id = null, holder = null, runner_id = null, claim_id = null, claimed_at = null,
           lease_expires_at = null, due_at = null
     where c.id = p_consumer.id
    returning * into v_after;

    update consumer_claims k
       set status = p_status, released_at = p_now, error = p_error, updated_at = p_now
     where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_consumer.epoch;

    update wake_notifications n
       set claim_status = case when p_status = 'expired' then 'expired' else 'completed' end, resolved_at = p_now, next_attempt_at = null
     where n.service_id = p_consumer.service_id and n.wake_id = p_consumer.wake_id;

    if p_consumer.entity_url is not null then
        update entity_dispatch_state d
           set active_consumer_id = null, active_runner_id = null, active_epoch = null,
               active_claimed_at = null, active_lease_expires_at = null,
               last_released_at = p_now,
               last_completed_at = case when p_status = 'released' then p_now else d.last_completed_at end,
               last_error = case p_status when 'released' then null
                                          when 'failed' then coalesce(p_error, 'The run failed.')
                                          else d.last_error end,
               updated_at = p_now
         where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
        update entities e set status = 'idle', updated_at = p_now
         where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url and e.status = 'running';
    end if;
    return v_after;
end
$$;
comment on function rouse._claim_end(rouse.consumers, text, text, timestamptz) is 'Ends the live claim of a locked consumer.';
