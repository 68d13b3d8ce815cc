-- _pool_waiting: the wakes that wait for a pool, the oldest p_limit at most and no
-- more than the pool has room for, their consumers locked; null when there are
-- none. p_limit null: as many as there is room for, up to a thousand. Nothing is
-- waited for: a consumer that somebody else has locked is being claimed, or is
-- looked at by claim_reap.
create or replace function rouse._pool_waiting(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamptz) returns uuid[]
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_room bigint;
begin
    select least(coalesce(p_limit, 1000), w.max_total_claims - (
               select count(*) from consumer_claims k
                where k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > p_now), 1000)
      into v_room
      from worker_pools w where w.id = p_pool_id and w.service_id = p_service_id and w.admin_status = 'enabled';
    if not found or v_room <= 0 then
        return null;
    end if;
    return _wakes_waiting(p_service_id, null, array[p_pool_id], v_room::integer);
end
$$;
comment on function rouse._pool_waiting(integer, text, integer, timestamptz) is 'The wakes that wait for a pool and that it has room for.';
