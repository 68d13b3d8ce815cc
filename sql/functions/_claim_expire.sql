-- _claim_expire: ends a lapsed claim and mints the next wake if work is left.
-- The caller holds the row lock and has seen lease_expires_at <= p_now. The
-- lapsed wake never grants again. Returns the wake to publish, or null.
create or replace function rouse._claim_expire(p_consumer rouse.consumers, p_now timestamptz) returns uuid
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_after consumers;
begin
    v_after := _claim_end(p_consumer, 'expired', 'The lease ended without a release.', p_now);
    if _entity_finish_stopping(v_after, p_now) then
        return null;
    end if;
    if not v_after.paused and _consumer_pending(v_after.id) then
        return _wake_mint(v_after, 'lease_expired', p_now);
    end if;
    return null;
end
$$;
comment on function rouse._claim_expire(rouse.consumers, timestamptz) is 'Ends a lapsed claim; mints the next wake if work is left.';
