-- claim_ack: advances the cursor of the live claim. p_acks is an array of
-- {"path": "/…", "position": bytes}.
create or replace function rouse.claim_ack(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb) returns rouse.claim_answer
language sql
set search_path = rouse, pg_temp
as $$
    select (a.answer).* from claim_apply(jsonb_build_array(jsonb_build_object('op', 'ack', 'service', p_service_id,
        'consumer', p_consumer, 'epoch', p_epoch, 'wake', p_wake, 'acks', p_acks)), true) a
$$;
comment on function rouse.claim_ack(integer, text, bigint, uuid, jsonb) is 'Advances a cursor: ok, stale, lease_expired, invalid_offset, unknown_stream, not_found.';
