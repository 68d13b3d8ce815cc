-- _wake_mint_subscriptions: _wake_mint's part for subscriptions; consumers of
-- other kinds are passed over. A wake is for one stream, the next one with
-- unread messages behind the last wake's, so that no busy stream starves
-- another.
--
-- If that is an entity's main stream, the notification is the entity's (RFC
-- "Wake notification shape") and names this stream alone: a receiver that knows
-- of entities handles this one and may ack what it was told of, so it must not
-- be told of more. Otherwise it names the plain streams with unread messages, at
-- most a thousand, and while the subscription watches few streams the others
-- too. What it does not name gets the next wake.
create or replace function rouse._wake_mint_subscriptions(p_consumers bigint[], p_reasons text[], p_now timestamptz)
returns table (consumer_id bigint, wake_id uuid)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
declare
    v_floor bigint := _epoch_floor();
begin
    return query
    with made as materialized (
        select c.id, c.service_id, c.name, greatest(c.epoch + 1, v_floor) as epoch, m.wake_id, s.type, s.wake_stream, t.stream_id, c.fruitless,
               case when s.target is null then
                   jsonb_strip_nulls(jsonb_build_object('type', s.type, 'subscription_id', s.id, 'mount', s.mount, 'url', s.webhook_url,
                                                        'wake_stream', s.wake_stream))
               -- A transport's target is its own: it may have members of the names that are the gateway's. Releases before
               -- it find no type here and leave the wake for others.
               else jsonb_build_object('subscription_id', s.id, 'mount', s.mount, 'target', s.target) end as target,
               jsonb_build_object(
                   'consumerId', c.name, 'epoch', greatest(c.epoch + 1, v_floor), 'wakeId', m.wake_id, 'streamPath', '/' || t.path,
                   'triggeredBy', jsonb_build_array('/' || t.path), 'triggerEvent', m.reason,
                   'subscription_id', s.id, 'triggered_by', jsonb_build_array(t.path))
               || case when t.kind <> 'entity' then jsonb_build_object('streams', (
                   select jsonb_agg(_subscription_stream(l.path, l.link_type, l.acked, l.tail) order by l.id)
                     from (select w.id, w.path, p.link_type, p.acked, w.tail
                             from consumer_streams p join streams w on w.id = any (array[p.stream_id])
                            where case when p.behind then p.consumer_id end = c.id and p.behind and w.tail > p.acked and w.path is not null and w.kind <> 'entity'
                            order by p.stream_id limit 1000) l)
                   || case when few.few then coalesce((
                   select jsonb_agg(_subscription_stream(w.path, p.link_type, p.acked, w.tail) order by w.id)
                     from consumer_streams p join streams w on w.id = any (array[p.stream_id])
                    where p.consumer_id = c.id and w.tail = p.acked and w.path is not null and w.kind <> 'entity'), '[]') else '[]' end) else jsonb_build_object(
                   'streams', jsonb_build_array(_subscription_stream('/' || t.path, t.link_type, t.acked, t.tail)
                                                || jsonb_build_object('offset', _offset(t.tail), 'ackedOffset', _offset(t.acked))),
                   'entity', (select jsonb_build_object(
                       'type', e.type, 'status', e.status, 'url', e.url,
                       'streams', jsonb_build_object('main', e.url || '/main', 'error', e.url || '/error'),
                       'tags', e.tags, 'spawnArgs', e.spawn_args, 'createdBy', e.created_by)
                       || case when e.sandbox is null then '{}' else jsonb_build_object('sandbox', e.sandbox) end
                         from entities e where e.url = '/' || left(t.path, -5) and e.service_id = c.service_id)) end as notification
          from (select u.id, u.reason, gen_random_uuid() as wake_id from unnest(p_consumers, p_reasons) u (id, reason)) m
          join consumers c on c.id = any (array[m.id]) and c.kind = 'subscription'
          join subscriptions s on s.consumer_id = any (array[c.id])
         cross join lateral (
               (select w.id as stream_id, w.path, w.kind, w.tail, p.acked, p.link_type
                  from consumer_streams p join streams w on w.id = any (array[p.stream_id])
                 where case when p.behind then p.consumer_id end = c.id and p.behind and p.stream_id > coalesce(c.turn, 0) and w.tail > p.acked and w.path is not null
                 order by p.stream_id limit 1)
                union all
               (select w.id, w.path, w.kind, w.tail, p.acked, p.link_type
                  from consumer_streams p join streams w on w.id = any (array[p.stream_id])
                 where case when p.behind then p.consumer_id end = c.id and p.behind and p.stream_id <= c.turn and w.tail > p.acked and w.path is not null
                 order by p.stream_id limit 1)
                limit 1) t
         cross join lateral (select count(*) <= 100 as few from (select from consumer_streams p where p.consumer_id = c.id limit 101) z) few
    ), waking as (
        update consumers c
           set state = 'waking', epoch = m.epoch, wake_id = m.wake_id, turn = m.stream_id, runner_id = null,
               holder = null, claim_id = null, claimed_at = null, lease_expires_at = null, told_at = p_now,
               -- A push transport's schedule lives in wake_notifications.next_attempt_at, and a wake stream keeps its entry.
               due_at = least(c.due_at, 'infinity')
          from made m
         where c.id = any (array[m.id])
    ), queued as (
        insert into wake_notifications (service_id, wake_id, consumer_id, epoch, target_type, target_webhook_url, target, runner_wake_stream,
                notification_public, next_attempt_at, created_at)
        select m.service_id, m.wake_id, m.name, m.epoch, m.type, m.target ->> 'url', m.target, '/' || m.wake_stream,
               m.notification, case when m.type <> 'pull-wake' then p_now + _fruitless_wait(m.fruitless) end, p_now
          from made m
    )
    select m.id, m.wake_id from made m;
end
$$;
comment on function rouse._wake_mint_subscriptions(bigint[], text[], timestamptz) is 'Makes the next wake of idle subscriptions under their row locks.';
