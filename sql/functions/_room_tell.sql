-- _room_tell: the wakes that may be told again since claims have ended, oldest
-- first, for the caller to publish; null when there are none. p_freed names the
-- ended claims: [{"service", "runner", "pool"}]. Where a runner or a pool was at
-- a limit before, as many of the wakes that wait for it as slots were freed; just
-- below one, as many of those that were refused for want of room, since another
-- slot may have been freed a moment ago, for another wake. Nothing is waited for;
-- who was refused by a count that is old by now is looked at by claim_reap.
create or replace function rouse._room_tell(p_freed jsonb, p_now timestamptz) returns uuid[]
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_wakes uuid[];
    v_pools text[];
    r       record;
    c_near  constant integer := 4;   -- further below a limit it was in nobody's way a moment ago
begin
    for r in
        select f.service, f.runner, f.pool, grouping(f.runner) = 1 as whole, count(*)::integer as freed
          from jsonb_to_recordset(p_freed) as f (service integer, runner text, pool text)
         group by grouping sets ((f.service, f.runner, f.pool), (f.service, f.pool))
         order by 1, 3, 2
    loop
        -- The pool's own limits: of all its claims, and of this runner's.
        v_wakes := v_wakes || (
            select case when x.held + r.freed >= x.most then _wakes_waiting(r.service, null, array[w.id], least(r.freed, x.most - x.held)::integer)
                        else _wakes_refused(r.service, null, array[w.id], r.freed) end
              from worker_pools w
             cross join lateral (
                   select case when r.whole then w.max_total_claims else w.max_concurrent_claims_per_runner end as most,
                          (select count(*) from consumer_claims k
                            where k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > p_now
                              and (r.whole or k.runner_id = r.runner)) as held) x
             where w.id = r.pool and w.service_id = r.service and w.admin_status = 'enabled'
               and x.held + r.freed >= x.most - c_near and x.held < x.most);
    end loop;
    for r in
        select f.service, f.runner, q.capacity, count(*)::integer as freed
          from jsonb_to_recordset(p_freed) as f (service integer, runner text)
          join runners q on q.id = any (array[f.runner]) and q.service_id = f.service and q.capacity is not null and q.admin_status = 'enabled'
         group by 1, 2, 3 order by 1, 2
    loop
        select array_agg(m.pool_id) into v_pools
          from worker_pool_members m join worker_pools w on w.id = any (array[m.pool_id]) and w.service_id = m.service_id and w.admin_status = 'enabled'
         where m.runner_id = r.runner and m.service_id = r.service and m.status = 'active'
           -- What waits for a pool that is full itself is told when that has room.
           and (w.max_total_claims is null or w.max_total_claims > (
                select count(*) from consumer_claims k
                 where k.pool_id = w.id and k.service_id = w.service_id and k.status = 'active' and k.lease_expires_at > p_now));
        v_wakes := v_wakes || (
            select case when x.held + r.freed >= r.capacity then _wakes_waiting(r.service, r.runner, v_pools, least(r.freed, r.capacity - x.held)::integer)
                        else _wakes_refused(r.service, r.runner, v_pools, r.freed) end
              from (select count(*) as held from consumer_claims k
                     where k.runner_id = r.runner and k.service_id = r.service and k.status = 'active' and k.lease_expires_at > p_now) x
             where x.held + r.freed >= r.capacity - c_near and x.held < r.capacity);
    end loop;
    if v_wakes is not null then
        update consumers c set told_at = p_now
          from wake_notifications n
         where n.wake_id = any (v_wakes) and c.name = any (array[n.consumer_id]) and c.service_id = n.service_id and c.look_at is not null;
    end if;
    return (select array_agg(x.id order by x.n) from (select u.id, min(u.n) as n from unnest(v_wakes) with ordinality u (id, n) group by u.id) x);
end
$$;
comment on function rouse._room_tell(jsonb, timestamptz) is 'The waiting wakes that ended claims have made room for.';
