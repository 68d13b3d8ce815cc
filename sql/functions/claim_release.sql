-- claim_release: acks and gives the mutex back; work that is left gets a fresh
-- wake. p_error, when not null, records the run as failed.
create or replace function rouse.claim_release(
    p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb default '[]', p_error text default null
) returns rouse.claim_answer
language sql
set search_path = rouse, pg_temp
as $$
    select (a.answer).* from claim_apply(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('op', 'release', 'service', p_service_id,
        'consumer', p_consumer, 'epoch', p_epoch, 'wake', p_wake, 'acks', p_acks, 'error', p_error))), true) a
$$;
comment on function rouse.claim_release(integer, text, bigint, uuid, jsonb, text) is 'Gives a mutex back: released, stale, lease_expired, invalid_offset, unknown_stream, not_found.';
