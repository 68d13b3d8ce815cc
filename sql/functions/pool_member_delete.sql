-- pool_member_delete: takes a runner out of a pool, or declines an invitation.
-- The pool's owner may, and the runner's. What it holds runs to its end. Whom
-- the pool's owner has taken out, or drained before, no join token lets in again
-- (barred_pool_members).
-- Outcomes: deleted, not_found, member_not_found, forbidden.
create or replace function rouse.pool_member_delete(
    p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean
) returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_owner  text;
    v_member worker_pool_members;
begin
    select w.owner_principal into v_owner from worker_pools w where w.id = p_pool_id and w.service_id = p_service_id for no key update;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    end if;
    select * into v_member from worker_pool_members m
     where m.pool_id = p_pool_id and m.runner_id = p_runner_id and m.service_id = p_service_id;
    if not (p_system or v_owner = p_principal or coalesce(v_member.owner_principal = p_principal, false)) then
        return query select 'forbidden', null::bigint;
        return;
    elsif v_member.runner_id is null then
        return query select 'member_not_found', null::bigint;
        return;
    end if;
    delete from worker_pool_members m where m.pool_id = p_pool_id and m.runner_id = p_runner_id and m.service_id = p_service_id;
    if p_system or v_owner = p_principal or v_member.status = 'disabled' and v_member.disabled_by <> v_member.owner_principal then
        insert into barred_pool_members (service_id, pool_id, runner_id) values (p_service_id, p_pool_id, p_runner_id) on conflict do nothing;
    end if;
    perform _target_left(p_service_id, null, array[p_pool_id], clock_timestamp());
    perform audit_add(p_service_id, p_principal, 'pool.member.delete', '/worker-pools/' || p_pool_id, jsonb_build_object('runner', p_runner_id));
    if v_member.status = 'active' then
        perform _pools_changed(p_service_id, p_runner_id, clock_timestamp());
    end if;
    return query select 'deleted', _txid();
end
$$;
comment on function rouse.pool_member_delete(integer, text, text, text, boolean) is 'Takes a runner out of a pool.';
