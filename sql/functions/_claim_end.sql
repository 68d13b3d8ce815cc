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
    v_goes_on boolean;
begin
    -- What the entity becomes decides whether its life goes on; only an entity
    -- that was asked to stop while it ran needs the question.
    select case when e.status = 'stopping' and p_reason is not null then 'stopped'
                when e.status = 'running' then 'idle'
                else e.status end into v_status
      from entities e where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url;
    v_goes_on := v_pending and p_reason is not null and not p_consumer.paused and v_status is distinct from 'stopped';
    with resolved as (
        update wake_notifications n
           set claim_status = case when p_status = 'expired' then 'expired' else 'completed' end, resolved_at = p_now, next_attempt_at = null
         where n.wake_id = p_consumer.wake_id
    ), shown as (
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
         where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url
    ), rested as (
        update entities e set status = v_status, updated_at = p_now
         where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url and e.status <> v_status
    ), ended as (
        update consumer_claims k
           set status = p_status, released_at = p_now, error = p_error, next_wake = case when p_reason is not null then v_goes_on end,
               acked_streams = coalesce(p_acked, k.acked_streams), updated_at = p_now
         where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_consumer.epoch
    )
    update consumers c
       set state = 'idle', wake_id = null, holder = null, runner_id = null, claim_id = null, claimed_at = null,
           lease_expires_at = null
     where c.id = p_consumer.id
    returning * into v_after;

    if v_status = 'stopped' then
        perform _entity_close(v_after, p_now);
    elsif v_goes_on then
        return _wake_mint(v_after, p_reason, p_now);
    end if;
    return null;
end
$$;
comment on function rouse._claim_end(rouse.consumers, text, text, jsonb, text, timestamptz) is 'Ends the live claim of a locked consumer.';
