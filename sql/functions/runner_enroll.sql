-- runner_enroll: runner_register together with the key that the runner's wake
-- streams are sealed to, so that nothing is served in the clear in between. A
-- null key keeps what is there. Outcomes: those of runner_register.
create or replace function rouse.runner_enroll(
    p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text,
    p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer, p_wake_key bytea, p_key_id text
) returns table (outcome text, txid bigint, runner rouse.runners)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_made record;
begin
    select * into v_made
      from runner_register(p_service_id, p_id, p_principal, p_system, p_owner, p_label, p_kind, p_admin_status, p_sandbox_profiles, p_capacity);
    outcome := v_made.outcome;
    txid := v_made.txid;
    runner := v_made.runner;
    if p_wake_key is not null and outcome in ('created', 'updated') then
        -- Who may register it may set its key.
        perform runner_wake_key_put(p_service_id, p_id, p_principal, true, p_wake_key, p_key_id);
        select * into runner from runners r where r.service_id = p_service_id and r.id = p_id;
    end if;
    return next;
end
$$;
comment on function rouse.runner_enroll(integer, text, text, boolean, text, text, text, text, jsonb, integer, bytea, text) is 'Makes or changes a runner, its wake stream and its key.';
