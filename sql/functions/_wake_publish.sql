-- _wake_publish: hands wakes to their transports inside the transaction that
-- minted them. A runner's or pool's wake becomes an entry of its wake stream (RFC
-- "Wake streams"), a push wake becomes due. Wake streams are locked last, in
-- id order, so that no two callers wait for each other. The entry carries no
-- secret: the gateway fills in claimToken and callback when its owner reads it.
-- A subscription's entry is a bare hint on a plain stream, which others may
-- watch in their turn.
create or replace function rouse._wake_publish(p_wakes uuid[], p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_notices text;
    v_push    text;
    v_watched bigint[];
begin
    perform 1 from streams s
      where s.id in (select t.id
                       from unnest(p_wakes) w
                       join wake_notifications n on n.wake_id = any (array[w])
                       join streams t on t.path = any (array[ltrim(n.runner_wake_stream, '/')]) and t.service_id = n.service_id)
      order by s.id for no key update;

    -- The streams are locked, so this statement sees the tails they will keep
    -- until it moves them: each entry's place is known without a join back.
    with entry as materialized (
        select b.wake_id, b.push, b.stream_id, b.payload,
               b.tail + sum(octet_length(b.payload)) over (partition by b.stream_id order by b.ord)::bigint as position
          from (select n.wake_id, n.next_attempt_at is not null as push, s.id as stream_id, s.tail, w.ord,
                       case when s.id is not null then convert_to((
                            case when n.target_runner_id is null and n.target_pool_id is null then '{}' else n.notification_public end || jsonb_build_object(
                            'type', 'wake',
                            'subscription_id', case when n.target_runner_id is null and n.target_pool_id is null then n.target ->> 'subscription_id' else n.consumer_id end,
                            'stream', ltrim(n.notification_public ->> 'streamPath', '/'),
                            'generation', n.epoch,
                            'ts', floor(extract(epoch from p_now) * 1000)::bigint))::text, 'UTF8') end as payload
                  from unnest(p_wakes) with ordinality as w (wake_id, ord)
                  join wake_notifications n on n.wake_id = any (array[w.wake_id])
                  left join lateral (select s.id, s.tail from streams s
                                      where s.path = ltrim(n.runner_wake_stream, '/') and s.service_id = n.service_id and s.closed_at is null
                                        and s.deleted_at is null limit 1) s on true
                -- Keeps the planner from writing each payload twice.
                offset 0) b
    ), moved as (
        update streams s
           set tail = e.tail,
               expires_at = case when s.ttl_seconds is null then s.expires_at else _stream_slide(s.expires_at, s.ttl_seconds, p_now) end
          from (select stream_id, max(position) as tail from entry where stream_id is not null group by stream_id) e
         where s.id = any (array[e.stream_id])
        returning s.id, s.tail, s.watched
    ), written as (
        insert into messages (stream_id, position, payload)
        select e.stream_id, e.position, e.payload from entry e where e.stream_id is not null
    ), marked as (
        update wake_notifications n
           set delivery_status = 'delivered', delivered_at = coalesce(n.delivered_at, p_now), attempts = n.attempts + 1,
               runner_wake_stream_offset = _offset(e.position)
          from entry e
         where e.stream_id is not null and n.wake_id = any (array[e.wake_id])
    )
    select m.notices, m.watched, (select string_agg(e.wake_id::text, ',') from entry e where e.push)
      into v_notices, v_watched, v_push
      from (select string_agg(m.id || ':' || m.tail || ':' || 16 * m.watched, ',') as notices,
                   array_agg(m.id) filter (where m.watched <> 0) as watched from moved m) m;
    if v_watched is not null then
        perform _stream_watched(v_watched);
    end if;
    if v_notices is not null then
        perform pg_logical_emit_message(true, 'rouse', v_notices);
    end if;
    if v_push is not null then
        perform pg_logical_emit_message(true, 'rouse.wake', v_push);
    end if;
end
$$;
comment on function rouse._wake_publish(uuid[], timestamptz) is 'Appends wakes to their runners'' wake streams, or makes them due for a push transport.';
