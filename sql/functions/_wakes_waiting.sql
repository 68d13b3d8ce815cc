-- _wakes_waiting: the oldest p_limit unclaimed wakes that wait for a runner
-- (null: for none) or for one of some pools, oldest first; null when there are
-- none. Their consumers are locked without waiting; what somebody else has
-- locked is passed over.
create or replace function rouse._wakes_waiting(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) returns uuid[]
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return (
        select array_agg(x.wake_id order by x.created_at, x.consumer_id)
          from (select w.wake_id, w.created_at, w.consumer_id
                  from (select n.wake_id, n.created_at, n.consumer_id, n.service_id
                          from (select n.wake_id, n.created_at, n.consumer_id, n.service_id
                                  from wake_notifications n
                                 where n.target_runner_id = p_runner_id and n.service_id = p_service_id
                                   and n.resolved_at is null and n.claim_status = 'unclaimed'
                                 order by n.created_at, n.consumer_id limit p_limit + 64) n
                        union all
                        select n.wake_id, n.created_at, n.consumer_id, n.service_id
                          from unnest(p_pools) p (id)
                         cross join lateral (
                               select n.wake_id, n.created_at, n.consumer_id, n.service_id
                                 from wake_notifications n
                                where n.target_pool_id = p.id and n.service_id = p_service_id
                                  and n.resolved_at is null and n.claim_status = 'unclaimed'
                                order by n.created_at, n.consumer_id limit p_limit + 64) n) w
                  join consumers c on c.name = any (array[w.consumer_id]) and c.service_id = w.service_id and c.wake_id = w.wake_id and c.state = 'waking'
                 order by w.created_at, w.consumer_id limit p_limit for update of c skip locked) x);
end
$$;
comment on function rouse._wakes_waiting(integer, text, text[], integer) is 'The oldest unclaimed wakes that wait for a runner or for pools, their consumers locked.';
