-- _target_left: has claim_reap look by p_at at the wakes that wait for a runner
-- (null: for none) or for some pools and that may move on, since it, or a member,
-- is or will be gone earlier than was known. Nothing is waited for: what somebody
-- else has locked is looked at when it is due anyway.
create or replace function rouse._target_left(p_service_id integer, p_runner_id text, p_pools text[], p_at timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_ids bigint[];
begin
    select array_agg(x.id) into v_ids
      from (select c.id
              from (select n.consumer_id, n.service_id, n.wake_id from wake_notifications n
                     where n.target_runner_id = p_runner_id and n.service_id = p_service_id and n.resolved_at is null and n.claim_status = 'unclaimed'
                     union all
                    select n.consumer_id, n.service_id, n.wake_id
                      from unnest(p_pools) p (id)
                     cross join lateral (select n.consumer_id, n.service_id, n.wake_id from wake_notifications n
                                          where n.target_pool_id = p.id and n.service_id = p_service_id and n.resolved_at is null and n.claim_status = 'unclaimed') n) w
              join consumers c on c.name = any (array[w.consumer_id]) and c.service_id = w.service_id and c.wake_id = w.wake_id
             where c.routed and c.state = 'waking' and c.due_at > p_at
               for update of c skip locked) x;
    update consumers c set due_at = least(c.due_at, p_at) where c.id = any (v_ids);
end
$$;
comment on function rouse._target_left(integer, text, text[], timestamptz) is 'Has wakes looked at whose target is gone earlier than was known.';
