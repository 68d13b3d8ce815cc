-- claim_heartbeat: extends the lease of the live claim (epoch, wake).
create or replace function rouse.claim_heartbeat(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid) returns rouse.claim_answer
language sql
set search_path = rouse, pg_temp
as $$
    select (a.answer).* from claim_apply(jsonb_build_array(jsonb_build_object('op', 'heartbeat', 'service', p_service_id,
        'consumer', p_consumer, 'epoch', p_epoch, 'wake', p_wake)), true) a
$$;
comment on function rouse.claim_heartbeat(integer, text, bigint, uuid) is 'Extends a lease: ok, stale, lease_expired, not_found.';
