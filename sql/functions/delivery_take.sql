-- _delivery_take, delivery_take: lends due wakes to a delivery worker for the
-- length of the consumer's lease, at a chosen time. A worker that dies with a
-- wake in hand leaves it due again when the loan ends. Each loan is an attempt.
create or replace function rouse._delivery_take(p_limit integer, p_now timestamptz)
returns table (service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint,
               attempt integer, target jsonb, notification jsonb, lease_ms integer)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query
    with due as (
        select n.service_id, n.wake_id from wake_notifications n
         where n.next_attempt_at <= p_now order by n.next_attempt_at limit p_limit for update skip locked
    ), taken as (
        update wake_notifications n
           set attempts = n.attempts + 1, next_attempt_at = p_now + make_interval(secs => c.lease_ttl_ms / 1000.0)
          from due d, consumers c
         where n.service_id = d.service_id and n.wake_id = d.wake_id
           and c.service_id = n.service_id and c.name = n.consumer_id
        returning n.*, c.id as c_id, c.lease_ttl_ms
    ), noted as (
        insert into delivery_attempts (service_id, wake_id, attempt, transport, started_at)
        select t.service_id, t.wake_id, t.attempts, t.target_type, p_now from taken t
    ), forgotten as (
        -- A receiver that is dead for weeks leaves its last attempts only.
        delete from delivery_attempts a using taken t
         where a.service_id = t.service_id and a.wake_id = t.wake_id and a.attempt <= t.attempts - 20
    )
    select t.service_id, s.name, t.wake_id, t.c_id, t.consumer_id, t.epoch, t.attempts, t.target, t.notification_public, t.lease_ttl_ms
      from taken t join services s on s.id = t.service_id;
end
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
