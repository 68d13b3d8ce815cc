-- _claim_fence: whether (epoch, wake) is the live claim of a locked consumer at
-- p_now: ok, stale (another epoch or wake is current, or the claim ended) or
-- lease_expired. Everything a holder does passes here.
create or replace function rouse._claim_fence(p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_now timestamptz) returns text
language plpgsql immutable
set search_path = rouse, pg_temp
as $$
begin
    return case
        when p_consumer.epoch <> p_epoch or p_consumer.state <> 'claimed' or p_consumer.wake_id is distinct from p_wake then
            'stale'
        when p_consumer.lease_expires_at <= p_now then 'lease_expired'
        else 'ok' end;
end
$$;
comment on function rouse._claim_fence(rouse.consumers, bigint, uuid, timestamptz) is 'Whether a claim is the live one at a chosen time.';
