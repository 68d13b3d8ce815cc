-- pool_join_rotate: ends every join token of a pool that was made before. New
-- ones let in whomever they are given to, also runners that were taken out.
-- Outcomes: rotated, not_found, forbidden.
create or replace function rouse.pool_join_rotate(p_service_id integer, p_id text, p_principal text, p_system boolean)
returns table (outcome text, txid bigint, join_generation integer)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_row worker_pools;
begin
    select * into v_row from worker_pools w where w.id = p_id and w.service_id = p_service_id for no key update;
    if not found then
        return query select 'not_found', null::bigint, null::integer;
        return;
    elsif v_row.owner_principal <> p_principal and not p_system then
        return query select 'forbidden', null::bigint, null::integer;
        return;
    end if;
    update worker_pools w set join_generation = w.join_generation + 1, updated_at = clock_timestamp()
     where w.id = p_id and w.service_id = p_service_id;
    delete from barred_pool_members b where b.pool_id = p_id and b.service_id = p_service_id;
    perform audit_add(p_service_id, p_principal, 'pool.join.rotate', '/worker-pools/' || p_id, null);
    return query select 'rotated', _txid(), v_row.join_generation + 1;
end
$$;
comment on function rouse.pool_join_rotate(integer, text, text, boolean) is 'Ends the join tokens of a pool.';
