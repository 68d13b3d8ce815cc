-- _runner_tell: tells a runner again of the wakes that wait for it, the oldest
-- thousand: same wakes, same epochs. Returns how many. For a runner that has
-- come back online or was enabled. Consumers come before wake streams, as
-- everywhere; one that somebody else has locked is being claimed, or is told by
-- claim_reap.
create or replace function rouse._runner_tell(p_service_id integer, p_runner_id text, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_wakes uuid[];
begin
    select array_agg(n.wake_id order by n.created_at) into v_wakes
      from (select w.wake_id, w.created_at from wake_notifications w
              join consumers c on c.service_id = w.service_id and c.name = w.consumer_id and c.wake_id = w.wake_id
             where w.service_id = p_service_id and w.target_runner_id = p_runner_id
               and w.resolved_at is null and w.claim_status = 'unclaimed' and c.state = 'waking'
             order by w.created_at limit 1000 for update of c skip locked) n;
    if v_wakes is null then
        return 0;
    end if;
    perform _wake_publish(v_wakes, p_now);
    return cardinality(v_wakes);
end
$$;
comment on function rouse._runner_tell(integer, text, timestamptz) is 'Tells a runner again of the wakes that wait for it.';
