-- _consumer_park: gives up the waking of a locked consumer that nobody holds:
-- its wake is taken back and it is paused until somebody redrives it; what it is
-- sent meanwhile stays pending. p_reason: attempts_exhausted, unclaimed,
-- delivery_failed or no_target.
create or replace function rouse._consumer_park(p_consumer rouse.consumers, p_reason text, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    if p_consumer.state = 'waking' then
        perform _wake_supersede(p_consumer, p_now);
    end if;
    update consumers c set paused = true, parked_at = p_now, parked_reason = p_reason, target_index = 0, due_at = null
     where c.id = p_consumer.id;
    update entity_dispatch_state d set pending_since = coalesce(d.pending_since, p_now), updated_at = p_now
     where d.entity_url = p_consumer.entity_url and d.service_id = p_consumer.service_id;
    perform audit_add(p_consumer.service_id, '/principal/system%3Aframework', 'entity.park', p_consumer.entity_url,
        jsonb_build_object('reason', p_reason, 'attempts', p_consumer.attempts));
end
$$;
comment on function rouse._consumer_park(rouse.consumers, text, timestamptz) is 'Gives up waking a consumer until somebody redrives it.';
