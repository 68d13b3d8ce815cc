-- claim_acquire: takes the mutex of a consumer, for psql users and other
-- languages; the gateway batches through claim_apply. p_wake null takes
-- whatever work is pending. p_runner names the runner that asks, if any.
create or replace function rouse.claim_acquire(
    p_service_id integer, p_consumer text, p_wake uuid, p_holder text, p_runner text default null, p_claim_id text default null
) returns rouse.claim_answer
language sql
set search_path = rouse, pg_temp
as $$
    select (a.answer).* from claim_apply(jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('op', 'acquire', 'service', p_service_id,
        'consumer', p_consumer, 'wake', p_wake, 'holder', p_holder, 'runner', p_runner, 'claim_id', p_claim_id))), true) a
$$;
comment on function rouse.claim_acquire(integer, text, uuid, text, text, text) is 'Takes a mutex: granted, repeated, held, stale, no_work, stopped, paused, not_owner, runner_*, not_found.';
