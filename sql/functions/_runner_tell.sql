-- _runner_tell: tells a runner again of the wakes that wait for it, the oldest
-- thousand, and of those that wait for its pools, the oldest that it could take:
-- same wakes, same epochs. Returns how many. For a runner that has
-- come back online or was enabled. Consumers come before wake streams, as
-- everywhere; one that somebody else has locked is being claimed, or is told by
-- claim_reap.
create or replace function rouse._runner_tell(p_service_id integer, p_runner_id text, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_wakes uuid[];
    r       record;
begin
    select array_agg(n.wake_id order by n.created_at) into v_wakes
      from (select w.wake_id, w.created_at from wake_notifications w
              join consumers c on c.service_id = w.service_id and c.name = w.consumer_id and c.wake_id = w.wake_id
             where w.service_id = p_service_id and w.target_runner_id = p_runner_id
               and w.resolved_at is null and w.claim_status = 'unclaimed' and c.state = 'waking'
             order by w.created_at limit 1000 for update of c skip locked) n;
    for r in
        select m.pool_id, coalesce(w.max_concurrent_claims_per_runner, q.capacity, 64) as room
          from worker_pool_members m
          join worker_pools w on w.id = any (array[m.pool_id]) and w.service_id = m.service_id and w.admin_status = 'enabled'
          join runners q on q.id = any (array[m.runner_id]) and q.service_id = m.service_id
         where m.runner_id = p_runner_id and m.service_id = p_service_id and m.status = 'active'
    loop
        v_wakes := v_wakes || _pool_waiting(p_service_id, r.pool_id, r.room, p_now);
    end loop;
    if v_wakes is not null then
        perform _wake_publish(v_wakes, p_now);
    end if;
    return coalesce(cardinality(v_wakes), 0);
end
$$;
comment on function rouse._runner_tell(integer, text, timestamptz) is 'Tells a runner again of the wakes that wait for it.';
