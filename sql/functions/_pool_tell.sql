-- _pool_tell: tells a pool again of the wakes that wait for it, the oldest
-- p_limit at most and no more than the pool has room for: same wakes, same
-- epochs. Returns how many. p_limit null: as many as there is room for, up to a
-- thousand. Consumers are locked without waiting: one that somebody else has
-- locked is being claimed, or is looked at by claim_reap. The caller may hold
-- the pool's row: nothing is waited for but wake streams.
create or replace function rouse._pool_tell(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_room  bigint;
    v_wakes uuid[];
begin
    select least(coalesce(p_limit, 1000), w.max_total_claims - (
               select count(*) from consumer_claims k
                where k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > p_now), 1000)
      into v_room
      from worker_pools w where w.id = p_pool_id and w.service_id = p_service_id and w.admin_status = 'enabled';
    if not found or v_room <= 0 then
        return 0;
    end if;
    v_wakes := _wakes_waiting(p_service_id, null, array[p_pool_id], v_room::integer);
    if v_wakes is null then
        return 0;
    end if;
    perform _wake_publish(v_wakes, p_now);
    return cardinality(v_wakes);
end
$$;
comment on function rouse._pool_tell(integer, text, integer, timestamptz) is 'Tells a pool again of the wakes that wait for it.';
