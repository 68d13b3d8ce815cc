-- _claim_room: whether a runner may take a wake now, of a pool if p_pool is
-- given: null, or why not: pool_disabled, not_member, pool_full, runner_disabled,
-- runner_full, or busy: somebody else counts at this moment (never with p_wait).
-- The pool's row, then the runner's, serialise the counts of their live claims;
-- neither is locked where there is no limit. p_granted holds what this round has
-- granted and not yet written: "service/r/runner", "service/p/pool" and
-- "service/p/pool/runner", once each, and "service/h/id" for consumers whose
-- claims it extends. A claim that has lapsed counts until it is over for good
-- (_claim_over), so that no heartbeat makes one too many of those granted.
create or replace function rouse._claim_room(
    p_service_id integer, p_runner text, p_pool text, p_granted text[], p_wait boolean, p_now timestamptz
) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_pool   worker_pools;
    v_runner runners;
    v_now    timestamptz;
    v_total  bigint;
    v_own    bigint;
    v_lapsed bigint;
    v_ask    boolean;
    v_full   text;
begin
    if p_pool is not null then
        select * into v_pool from worker_pools w where w.id = p_pool and w.service_id = p_service_id;
        if v_pool.max_total_claims is not null or v_pool.max_concurrent_claims_per_runner is not null then
            if p_wait then
                perform 1 from worker_pools w where w.id = p_pool and w.service_id = p_service_id for no key update;
            end if;
            select * into v_pool from worker_pools w where w.id = p_pool and w.service_id = p_service_id for no key update skip locked;
            if not found and exists (select from worker_pools w where w.id = p_pool and w.service_id = p_service_id) then
                return 'busy';
            end if;
        end if;
        if v_pool.id is null or v_pool.admin_status <> 'enabled' then
            return 'pool_disabled';
        elsif not exists (select from worker_pool_members m
                           where m.pool_id = p_pool and m.runner_id = p_runner and m.service_id = p_service_id and m.status = 'active') then
            return 'not_member';
        end if;
    end if;
    select * into v_runner from runners q where q.id = p_runner and q.service_id = p_service_id;
    if v_runner.capacity is not null then
        if p_wait then
            perform 1 from runners q where q.id = p_runner and q.service_id = p_service_id for no key update;
        end if;
        select * into v_runner from runners q where q.id = p_runner and q.service_id = p_service_id for no key update skip locked;
        if not found then
            return 'busy';
        end if;
    end if;
    if v_runner.admin_status <> 'enabled' then
        return 'runner_disabled';
    end if;

    v_now := coalesce(p_now, clock_timestamp());
    -- Whether those that have lapsed are over is asked, with locks, only where they are in the way.
    foreach v_ask in array array[false, true] loop
        v_full := null;
        v_lapsed := 0;
        if v_pool.max_total_claims is not null or v_pool.max_concurrent_claims_per_runner is not null then
            select count(*), count(*) filter (where k.runner_id = p_runner), count(*) filter (where k.lease_expires_at <= v_now)
              into v_total, v_own, v_lapsed
              from consumer_claims k
             where k.pool_id = p_pool and k.service_id = p_service_id and k.status = 'active'
               and case when not v_ask or k.lease_expires_at > v_now then true else not _claim_over(k.service_id, k.consumer_id, k.epoch, p_granted, v_now) end;
            v_full := case
                when v_total + coalesce(cardinality(array_positions(p_granted, p_service_id || '/p/' || p_pool)), 0) >= v_pool.max_total_claims then 'pool_full'
                when v_own + coalesce(cardinality(array_positions(p_granted, p_service_id || '/p/' || p_pool || '/' || p_runner)), 0)
                     >= v_pool.max_concurrent_claims_per_runner then 'runner_full' end;
        end if;
        if v_full is null and v_runner.capacity is not null then
            select count(*), count(*) filter (where k.lease_expires_at <= v_now) into v_own, v_lapsed
              from consumer_claims k
             where k.runner_id = p_runner and k.service_id = p_service_id and k.status = 'active'
               and case when not v_ask or k.lease_expires_at > v_now then true else not _claim_over(k.service_id, k.consumer_id, k.epoch, p_granted, v_now) end;
            if v_own + coalesce(cardinality(array_positions(p_granted, p_service_id || '/r/' || p_runner)), 0) >= v_runner.capacity then
                v_full := 'runner_full';
            end if;
        end if;
        exit when v_full is null or v_lapsed = 0;
    end loop;
    return v_full;
end
$$;
comment on function rouse._claim_room(integer, text, text, text[], boolean, timestamptz) is 'Whether a runner, and a pool, have room for one more claim.';
