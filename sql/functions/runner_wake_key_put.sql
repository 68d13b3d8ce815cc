-- runner_wake_key_put: sets the public key that the entries of a runner's wake
-- streams are sealed to, or removes it (null). It holds for every read from
-- then on, of old entries too. p_key_id is how the audit names the key.
-- Outcomes: updated, unchanged, not_found, forbidden.
create or replace function rouse.runner_wake_key_put(
    p_service_id integer, p_id text, p_principal text, p_system boolean, p_wake_key bytea, p_key_id text
) returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_row runners;
begin
    select * into v_row from runners r where r.service_id = p_service_id and r.id = p_id for update;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    elsif v_row.owner_principal <> p_principal and not p_system then
        return query select 'forbidden', null::bigint;
        return;
    elsif v_row.wake_key is not distinct from p_wake_key then
        return query select 'unchanged', _txid();
        return;
    end if;
    update runners r set wake_key = p_wake_key, updated_at = clock_timestamp()
     where r.service_id = p_service_id and r.id = p_id;
    perform audit_add(p_service_id, p_principal, case when p_wake_key is null then 'runner.wake_key.remove' else 'runner.wake_key.set' end,
                      '/runners/' || p_id, case when p_wake_key is null then null else jsonb_build_object('key_id', p_key_id) end);
    return query select 'updated', _txid();
end
$$;
comment on function rouse.runner_wake_key_put(integer, text, text, boolean, bytea, text) is 'Sets or removes the key that a runner''s wake streams are sealed to.';
