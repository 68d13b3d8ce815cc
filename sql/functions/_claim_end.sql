-- _claim_end: ends the live claim of a consumer whose row the caller has
-- locked. p_status is released, expired or failed; p_acked, when not null, is
-- what this claim has acked. The wake that carried the claim is resolved with
-- it. With p_reason the life goes on: an entity that was asked to stop while it
-- ran is stopped now, and work that is left gets its next wake, whose id is
-- returned for the caller to publish. Without, the mutex is left idle.
create or replace function rouse._claim_end(
    p_consumer rouse.consumers, p_status text, p_error text, p_acked jsonb, p_reason text, p_now timestamptz
) returns uuid
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_after   consumers;
    v_pending boolean := _consumer_pending(p_consumer.id);
    v_status  text;
begin
    update consumers c
       set state = 'idle', wake_id = null, holder = null, runner_id = null, claim_id = null, claimed_at = null,
           lease_expires_at = null
     where c.id = p_consumer.id
    returning * into v_after;

    update wake_notifications n
       set claim_status = case when p_status = 'expired' then 'expired' else 'completed' end, resolved_at = p_now, next_attempt_at = null
     where n.service_id = p_consumer.service_id and n.wake_id = p_consumer.wake_id;

    if p_consumer.entity_url is not null then
        update entity_dispatch_state d
           set active_consumer_id = null, active_runner_id = null, active_epoch = null,
               active_claimed_at = null, active_lease_expires_at = null,
               pending_source_streams = case when v_pending then d.pending_source_streams else '[]' end,
               pending_reason = case when v_pending then d.pending_reason end,
               pending_since = case when v_pending then d.pending_since end,
               last_released_at = p_now,
               last_completed_at = case when p_status = 'released' then p_now else d.last_completed_at end,
               last_error = case p_status when 'released' then null
                                          when 'failed' then coalesce(p_error, 'The run failed.')
                                          else d.last_error end,
               updated_at = p_now
         where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
        update entities e
           set status = case when e.status = 'stopping' then 'stopped' else 'idle' end, updated_at = p_now
         where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url
           and (e.status = 'running' or e.status = 'stopping' and p_reason is not null)
        returning e.status into v_status;
    end if;

    v_pending := v_pending and p_reason is not null and not v_after.paused and v_status is distinct from 'stopped';
    update consumer_claims k
       set status = p_status, released_at = p_now, error = p_error, next_wake = case when p_reason is not null then v_pending end,
           acked_streams = coalesce(p_acked, k.acked_streams), updated_at = p_now
     where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_consumer.epoch;

    if v_status = 'stopped' then
        perform _entity_close(v_after, p_now);
    elsif v_pending then
        return _wake_mint(v_after, p_reason, p_now);
    end if;
    return null;
end
$$;
comment on function rouse._claim_end(rouse.consumers, text, text, jsonb, text, timestamptz) is 'Ends the live claim of a locked consumer.';
