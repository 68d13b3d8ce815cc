-- runner_set_status: enables or disables a runner. A disabled runner is
-- granted no claim; what it holds runs to its end. An enabled one is told of
-- the wakes that wait for it.
-- Outcomes: updated, unchanged, not_found, forbidden.
create or replace function rouse.runner_set_status(
    p_service_id integer, p_id text, p_principal text, p_system boolean, p_admin_status text
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
    elsif v_row.admin_status = p_admin_status then
        return query select 'unchanged', _txid();
        return;
    end if;
    update runners r set admin_status = p_admin_status, updated_at = clock_timestamp()
     where r.service_id = p_service_id and r.id = p_id;
    if p_admin_status = 'enabled' then
        perform _runner_tell(p_service_id, p_id, clock_timestamp());
    end if;
    if p_admin_status = 'disabled' then
        perform _target_left(p_service_id, p_id, array(select m.pool_id from worker_pool_members m where m.runner_id = p_id and m.service_id = p_service_id and m.status = 'active'), clock_timestamp());
    end if;
    perform audit_add(p_service_id, p_principal, 'runner.' || p_admin_status, '/runners/' || p_id, null);
    return query select 'updated', _txid();
end
$$;
comment on function rouse.runner_set_status(integer, text, text, boolean, text) is 'Enables or disables a runner.';
