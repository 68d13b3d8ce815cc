-- _leases_clip, leases_clip: for when the clock was set back: no lease of a
-- claim ends later than it would if it were given now, and wakes that were told
-- in what is the future again are told again when they would be if it had been
-- now. At most a thousand consumers; returns how many. Whoever holds one was
-- promised no more, and rows that somebody holds locked are passed over: a
-- heartbeat clips its own. One that ends within a second of then is left alone:
-- it may have been given after the clock was read.
create or replace function rouse._leases_clip(p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_ids bigint[];
begin
    select array_agg(x.id) into v_ids
      from (select c.id from consumers c
             where c.due_at > p_now and c.due_at < 'infinity'
               and (c.state = 'claimed' and c.lease_expires_at > p_now + c.lease_ttl_ms * interval '1 ms' + interval '1 s'
                    or c.state = 'waking' and c.told_at > p_now + interval '1 s' and c.due_at > p_now + c.wake_ttl_ms * interval '1 ms')
             limit 1000 for update skip locked) x;
    with clipped as (
        update consumers c
           set lease_expires_at = case when c.state = 'claimed' then p_now + c.lease_ttl_ms * interval '1 ms' end,
               told_at = least(c.told_at, p_now), look_at = case when c.state = 'waking' then least(c.look_at, p_now + interval '1 s') else c.look_at end,
               due_at = least(c.due_at, p_now + case c.state when 'claimed' then c.lease_ttl_ms else c.wake_ttl_ms end * interval '1 ms')
         where c.id = any (v_ids)
        returning c.service_id, c.name, c.entity_url, c.epoch, c.lease_expires_at
    ), claimed as (
        update consumer_claims k set lease_expires_at = x.lease_expires_at, updated_at = p_now
          from clipped x
         where x.lease_expires_at is not null and k.consumer_id = any (array[x.name]) and k.epoch = x.epoch and k.service_id = x.service_id
    )
    update entity_dispatch_state d set active_lease_expires_at = x.lease_expires_at, updated_at = p_now
      from clipped x
     where x.lease_expires_at is not null and d.entity_url = any (array[x.entity_url]) and d.service_id = x.service_id;
    return coalesce(cardinality(v_ids), 0);
end
$$;
comment on function rouse._leases_clip(timestamptz) is 'leases_clip at a chosen time, for tests.';

create or replace function rouse.leases_clip() returns integer
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
    select _leases_clip(clock_timestamp())
$$;
comment on function rouse.leases_clip() is 'Shortens leases that end later than they could be given now: the clock was set back.';
