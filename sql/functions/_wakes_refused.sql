-- _wakes_refused: _wakes_waiting, but only of wakes that were asked for and
-- refused for want of room (consumers.look_at), whoever was told longest ago
-- first, so that of several slots each is told to another. It looks at a few of
-- the oldest only, since it is asked with every claim that ends just below a limit; the
-- rest are looked at by claim_reap.
create or replace function rouse._wakes_refused(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) returns uuid[]
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return (
        select array_agg(x.wake_id order by x.told_at, x.created_at, x.consumer_id)
          from (select w.wake_id, w.created_at, w.consumer_id, c.told_at
                  from (select n.wake_id, n.created_at, n.consumer_id, n.service_id
                          from (select n.wake_id, n.created_at, n.consumer_id, n.service_id
                                  from wake_notifications n
                                 where n.target_runner_id = p_runner_id and n.service_id = p_service_id
                                   and n.resolved_at is null and n.claim_status = 'unclaimed'
                                 order by n.created_at, n.consumer_id limit p_limit + 8) n
                        union all
                        select n.wake_id, n.created_at, n.consumer_id, n.service_id
                          from unnest(p_pools) p (id)
                         cross join lateral (
                               select n.wake_id, n.created_at, n.consumer_id, n.service_id
                                 from wake_notifications n
                                where n.target_pool_id = p.id and n.service_id = p_service_id
                                  and n.resolved_at is null and n.claim_status = 'unclaimed'
                                order by n.created_at, n.consumer_id limit p_limit + 8) n) w
                  join consumers c on c.name = any (array[w.consumer_id]) and c.service_id = w.service_id and c.wake_id = w.wake_id
                                  and c.state = 'waking' and c.look_at is not null
                 order by c.told_at, w.created_at, w.consumer_id limit p_limit for update of c skip locked) x);
end
$$;
comment on function rouse._wakes_refused(integer, text, text[], integer) is 'Unclaimed wakes that were refused for want of room, their consumers locked.';
