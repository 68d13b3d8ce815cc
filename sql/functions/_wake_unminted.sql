-- _wake_unminted: _wake_mint's look at entities that got no wake: one whose
-- policy gives up is parked when its attempts are used up, and one that has no
-- target left but pools that are gone is parked too.
create or replace function rouse._wake_unminted(p_consumers bigint[], p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    perform _consumer_park(c, case when c.attempts >= (e.dispatch_policy #>> '{giveUp,attempts}')::integer then 'attempts_exhausted' else 'no_target' end, p_now)
       from consumers c
       join entities e on e.url = any (array[c.entity_url]) and e.service_id = c.service_id
      where c.id = any (p_consumers) and c.kind <> 'subscription' and c.state = 'idle' and not c.paused
        and (c.attempts >= (e.dispatch_policy #>> '{giveUp,attempts}')::integer
             or e.dispatch_policy -> 'targets' @> '[{"type": "worker-pool"}]');
end
$$;
comment on function rouse._wake_unminted(bigint[], timestamptz) is 'Parks entities whose attempts are used up or whose pools are gone.';
