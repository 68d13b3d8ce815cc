-- _claim_heartbeat: extends the lease of the live claim, at a chosen time. The
-- caller holds the consumer's row lock. A lapsed claim stays lapsed. Only
-- columns without an index change. Outcomes: ok, stale, lease_expired.
create or replace function rouse._claim_heartbeat(p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_now timestamptz)
returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_a     claim_answer;
    v_lease timestamptz;
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
    -- A lease never shrinks, also when the database's clock has stepped back.
    v_lease := greatest(p_consumer.lease_expires_at, p_now + make_interval(secs => p_consumer.lease_ttl_ms / 1000.0));
    update consumers c set lease_expires_at = v_lease where c.id = p_consumer.id;
    update consumer_claims k set last_heartbeat_at = p_now, lease_expires_at = v_lease, updated_at = p_now
     where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_epoch;
    update entity_dispatch_state d set active_lease_expires_at = v_lease, updated_at = p_now
     where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
    v_a.holder := p_consumer.holder;
    v_a.runner_id := p_consumer.runner_id;
    v_a.lease_ms := ceil(extract(epoch from v_lease - p_now) * 1000)::bigint;
    return v_a;
end
$$;
comment on function rouse._claim_heartbeat(rouse.consumers, bigint, uuid, timestamptz) is 'Extends the live claim''s lease at a chosen time.';
