-- _claim_ack: advances the cursor of the live claim, at a chosen time; see
-- _claim_advance. Outcomes: ok, stale, lease_expired, invalid_offset,
-- unknown_stream, busy (only without p_wait).
create or replace function rouse._claim_ack(
    p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_acks jsonb, p_now timestamptz, p_wait boolean default true
) returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_a     claim_answer;
    v_acked jsonb;
begin
    v_a.consumer_id := p_consumer.id;
    v_a.consumer_name := p_consumer.name;
    v_a.entity_url := p_consumer.entity_url;
    v_a.epoch := p_consumer.epoch;
    v_a.wake_id := p_consumer.wake_id;
    v_a.outcome := _claim_fence(p_consumer, p_epoch, p_wake, p_now);
    if v_a.outcome <> 'ok' then
        return v_a;
    end if;
    v_a.lease_ms := ceil(extract(epoch from p_consumer.lease_expires_at - p_now) * 1000)::bigint;
    select a.outcome, a.acked into v_a.outcome, v_acked from _claim_advance(p_consumer, p_acks, p_wait) a;
    if v_a.outcome <> 'ok' or v_acked = '[]' then
        return v_a;
    end if;
    update consumer_claims k set acked_streams = v_acked, updated_at = p_now
     where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_epoch;
    if p_consumer.entity_url is not null and not _consumer_pending(p_consumer.id) then
        update entity_dispatch_state d
           set pending_source_streams = '[]', pending_reason = null, pending_since = null, updated_at = p_now
         where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
    end if;
    return v_a;
end
$$;
comment on function rouse._claim_ack(rouse.consumers, bigint, uuid, jsonb, timestamptz, boolean) is 'Advances the cursor of the live claim at a chosen time.';
