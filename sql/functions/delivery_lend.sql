-- _delivery_lend, delivery_lend: lends due wakes to a delivery worker for the
-- length of the consumer's lease, at a chosen time. A worker that dies with a
-- wake in hand leaves it due again when the loan ends. Each loan is an attempt.
--
-- p_room says how many more wakes the worker takes for a receiver (its
-- receiver column: host and port of a webhook, else the target's type), p_each
-- for any that it does not say; nothing is lent beyond that, and what is due
-- for a receiver without room holds up nothing behind it. more: as many were
-- due as p_limit allows to look at, so there may be more. A target goes without
-- its conditions (when): transports know nothing of them.
create or replace function rouse._delivery_lend(p_limit integer, p_each integer, p_room jsonb, p_now timestamptz)
returns table (service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint,
               attempt integer, target jsonb, notification jsonb, lease_ms integer, receiver text, more boolean)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query
    with due as materialized (
        select n.service_id, n.wake_id, n.next_attempt_at, k.receiver, coalesce((p_room ->> k.receiver)::integer, p_each) as room
          from wake_notifications n
         cross join lateral (select coalesce(lower(substring(n.target_webhook_url from '^[^:]+://([^/?#]*)')), n.target_type) as receiver) k
         where n.next_attempt_at <= p_now and coalesce((p_room ->> k.receiver)::integer, p_each) > 0
         order by n.next_attempt_at limit p_limit for update of n skip locked
    ), ranked as materialized (
        -- Those beyond the room are let go at the commit, as they were.
        select d.*, row_number() over (partition by d.receiver order by d.next_attempt_at) as nth, count(*) over () as seen from due d
    ), taken as (
        update wake_notifications n
           set attempts = n.attempts + 1, next_attempt_at = p_now + make_interval(secs => c.lease_ttl_ms / 1000.0)
          from ranked d, consumers c
         where d.nth <= d.room and n.service_id = d.service_id and n.wake_id = d.wake_id
           and c.service_id = n.service_id and c.name = n.consumer_id
        returning n.*, c.id as c_id, c.lease_ttl_ms, d.receiver as d_receiver, d.seen
    ), noted as (
        insert into delivery_attempts (service_id, wake_id, attempt, transport, started_at)
        select t.service_id, t.wake_id, t.attempts, t.target_type, p_now from taken t
    ), forgotten as (
        -- A receiver that is dead for weeks leaves its last attempts only.
        delete from delivery_attempts a using taken t
         where a.service_id = t.service_id and a.wake_id = t.wake_id and a.attempt <= t.attempts - 20
    )
    select t.service_id, s.name, t.wake_id, t.c_id, t.consumer_id, t.epoch, t.attempts, t.target - 'when', t.notification_public, t.lease_ttl_ms,
           t.d_receiver, t.seen >= p_limit
      from taken t join services s on s.id = t.service_id;
end
$$;
comment on function rouse._delivery_lend(integer, integer, jsonb, timestamptz) is 'Lends due wakes to a delivery worker at a chosen time, each receiver''s up to its room.';

create or replace function rouse.delivery_lend(p_limit integer, p_each integer, p_room jsonb)
returns table (service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint,
               attempt integer, target jsonb, notification jsonb, lease_ms integer, receiver text, more boolean)
language sql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select * from _delivery_lend(p_limit, p_each, p_room, clock_timestamp())
$$;
comment on function rouse.delivery_lend(integer, integer, jsonb) is 'Lends due wakes to a delivery worker, each receiver''s up to its room.';
