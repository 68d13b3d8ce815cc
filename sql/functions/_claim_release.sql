-- _claim_release: acks and ends the live claim, at a chosen time; work beyond
-- the acks gets a fresh wake in the same transaction. A repeat for the same
-- (wake, epoch) answers what the first one answered. p_error, when not null,
-- records the run as failed. Outcomes: released, stale, lease_expired,
-- invalid_offset, unknown_stream, busy (only without p_wait); a refusal changes
-- nothing but the end of a lapsed claim.
create or replace function rouse._claim_release(
    p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_acks jsonb, p_error text, p_now timestamptz, p_wait boolean default true
) returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_a     claim_answer;
    v_claim consumer_claims;
    v_acked jsonb;
begin
    v_a.consumer_id := p_consumer.id;
    v_a.consumer_name := p_consumer.name;
    v_a.entity_url := p_consumer.entity_url;
    v_a.epoch := p_consumer.epoch;
    v_a.outcome := _claim_fence(p_consumer, p_epoch, p_wake, p_now);
    if v_a.outcome = 'lease_expired' then
        v_a.minted := _claim_end(p_consumer, 'expired', 'The lease ended without a release.', null, 'lease_expired', p_now);
        return v_a;
    elsif v_a.outcome = 'stale' then
        select * into v_claim from consumer_claims k
         where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_epoch and k.wake_id = p_wake;
        if v_claim.next_wake is not null and v_claim.status <> 'expired' then
            v_a.outcome := 'released';
            v_a.epoch := p_epoch;
            v_a.wake_id := p_wake;
            v_a.next_wake := v_claim.next_wake;
        elsif v_claim.status = 'expired' then
            v_a.outcome := 'lease_expired';
        end if;
        return v_a;
    end if;

    if jsonb_array_length(coalesce(p_acks, '[]')) > 0 then
        select a.outcome, a.acked into v_a.outcome, v_acked from _claim_advance(p_consumer, p_acks, p_wait) a;
        if v_a.outcome <> 'ok' then
            return v_a;
        end if;
    end if;
    v_a.minted := _claim_end(p_consumer, case when p_error is null then 'released' else 'failed' end, p_error, v_acked, 'release', p_now);
    v_a.outcome := 'released';
    v_a.wake_id := p_wake;
    v_a.next_wake := v_a.minted is not null;
    select e.status into v_a.entity_status from entities e
     where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url;
    return v_a;
end
$$;
comment on function rouse._claim_release(rouse.consumers, bigint, uuid, jsonb, text, timestamptz, boolean) is 'Acks and ends the live claim at a chosen time.';
