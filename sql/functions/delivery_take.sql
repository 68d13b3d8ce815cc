-- _delivery_take, delivery_take: delivery_lend without regard to receivers, as
-- releases before it call it.
create or replace function rouse._delivery_take(p_limit integer, p_now timestamptz)
returns table (service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint,
               attempt integer, target jsonb, notification jsonb, lease_ms integer)
language sql
set search_path = rouse, pg_temp
as $$
    select l.service_id, l.service_name, l.wake_id, l.consumer_id, l.consumer_name, l.epoch, l.attempt, l.target, l.notification, l.lease_ms
      from _delivery_lend(p_limit, p_limit, '{}', p_now) l
$$;
comment on function rouse._delivery_take(integer, timestamptz) is 'Lends due wakes to a delivery worker at a chosen time.';

create or replace function rouse.delivery_take(p_limit integer)
returns table (service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint,
               attempt integer, target jsonb, notification jsonb, lease_ms integer)
language sql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select * from _delivery_take(p_limit, clock_timestamp())
$$;
comment on function rouse.delivery_take(integer) is 'Lends due wakes to a delivery worker.';
