-- pool_member_put: adds a runner to a pool, accepts an invitation, drains a
-- member (p_status disabled: no new claims, what it holds runs to its end) or
-- takes it back (active). A member is active when both owners have said so:
-- p_invited says that the caller showed a valid join token of the pool, which is
-- the pool owner's word, save for a runner that the pool's owner has taken out
-- since (barred_pool_members). The runner's owner undoes only a disabling of their own.
-- Outcomes: active, disabled, invited (the runner's owner has yet to accept),
-- accepted (and active with it), forbidden, pool_not_found, runner_not_found.
create or replace function rouse.pool_member_put(
    p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean, p_status text, p_invited boolean
) returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_pool    worker_pools;
    v_owner   text;
    v_was     worker_pool_members;
    v_pools   boolean;   -- the pool's owner says so
    v_runners boolean;   -- the runner's owner says so
    v_status  text := p_status;
    v_barred  boolean := false;
begin
    -- The pool's row serialises its members with each other and with claims under limits.
    select * into v_pool from worker_pools w where w.id = p_pool_id and w.service_id = p_service_id for no key update;
    if not found then
        return query select 'pool_not_found', null::bigint;
        return;
    end if;
    select r.owner_principal into v_owner from runners r where r.id = p_runner_id and r.service_id = p_service_id;
    v_pools := p_system or v_pool.owner_principal = p_principal;
    v_runners := p_system or coalesce(v_owner = p_principal, false);
    if v_owner is null and v_pools then
        return query select 'runner_not_found', null::bigint;
        return;
    elsif not v_pools and not v_runners then
        return query select 'forbidden', null::bigint;
        return;
    end if;
    select * into v_was from worker_pool_members m
     where m.pool_id = p_pool_id and m.runner_id = p_runner_id and m.service_id = p_service_id;

    if p_status = 'active' then
        if v_pools then
            delete from barred_pool_members b where b.pool_id = p_pool_id and b.runner_id = p_runner_id and b.service_id = p_service_id;
        else
            v_barred := exists (select from barred_pool_members b where b.pool_id = p_pool_id and b.runner_id = p_runner_id and b.service_id = p_service_id);
        end if;
        if not v_pools and not (coalesce(p_invited, false) and v_was.status is distinct from 'disabled' and not v_barred)
           and coalesce(v_was.status not in ('invited', 'active') and v_was.disabled_by is distinct from p_principal, true) then
            return query select 'forbidden', null::bigint;
            return;
        elsif not v_runners and (not coalesce(v_was.accepted, false) or v_was.status = 'disabled' and v_was.disabled_by = v_owner) then
            v_status := 'invited';
        end if;
    elsif v_was.runner_id is null and not v_pools then
        return query select 'forbidden', null::bigint;
        return;
    end if;

    insert into worker_pool_members as m (service_id, pool_id, runner_id, owner_principal, status, accepted, disabled_by, added_by)
    values (p_service_id, p_pool_id, p_runner_id, v_owner, v_status, v_status = 'active' or v_runners,
            case when v_status = 'disabled' then p_principal end, p_principal)
    on conflict (pool_id, runner_id, service_id) do update
       set status = excluded.status, updated_at = clock_timestamp(),
           accepted = case excluded.status when 'active' then true when 'invited' then false else m.accepted end,
           disabled_by = case when excluded.status <> 'disabled' then null when m.status = 'disabled' then m.disabled_by else excluded.disabled_by end
     where m.status <> excluded.status;
    if found then
        if v_status = 'active' then
            perform _pool_tell(p_service_id, p_pool_id, coalesce(v_pool.max_concurrent_claims_per_runner, 64), clock_timestamp());
        elsif v_was.status = 'active' then
            perform _target_left(p_service_id, null, array[p_pool_id], clock_timestamp());
        end if;
        perform audit_add(p_service_id, p_principal, 'pool.member.' || v_status, '/worker-pools/' || p_pool_id,
            jsonb_build_object('runner', p_runner_id));
        if v_status = 'active' or v_was.status = 'active' then
            perform _pools_changed(p_service_id, p_runner_id, clock_timestamp());
        end if;
    end if;
    return query select case when v_status = 'active' and not v_pools and v_was.status is distinct from 'active' and v_was.accepted is not true
                             then 'accepted' else v_status end, _txid();
end
$$;
comment on function rouse.pool_member_put(integer, text, text, text, boolean, text, boolean) is 'Adds, accepts, drains or takes back a pool''s member.';
