-- subscription_get: a subscription with its mutex and at most p_streams of what
-- it watches: what it names first, then what its pattern has found. No row when
-- there is none. An acked_offset of -1 is a link that has not been read from.
create or replace function rouse.subscription_get(p_service integer, p_id text, p_streams integer)
returns table (consumer_id bigint, consumer_name text, id text, type text, pattern text, wake_stream text, webhook_url text,
               description text, lease_ttl_ms integer, mount text, owner text, system boolean, status text, last_error text,
               created_at timestamptz, state text, epoch bigint, wake_id text, holder text, lease_ms bigint, pending boolean, streams jsonb)
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select s.consumer_id, c.name, s.id, s.type, s.pattern, s.wake_stream, s.webhook_url, s.description, c.lease_ttl_ms, s.mount, s.owner,
           s.system, s.status, s.last_error, s.created_at,
           case when c.state = 'claimed' and c.lease_expires_at <= n.at then 'expired' else c.state end, c.epoch, c.wake_id::text, c.holder,
           case when c.lease_expires_at > n.at then ceil(extract(epoch from c.lease_expires_at - n.at) * 1000)::bigint end,
           _consumer_pending(c.id),
           coalesce((
               select jsonb_agg(_subscription_stream(l.path, l.link_type, l.acked, l.tail) order by l.link_type, l.path)
                 from (select p.path, 'explicit' as link_type, coalesce(t.acked, 0) as acked, coalesce(t.tail, 0) as tail
                         from (select p.path from subscription_paths p where p.consumer_id = s.consumer_id order by p.path limit p_streams) p
                         left join lateral (select cs.acked, t.tail from streams t join consumer_streams cs on cs.stream_id = t.id
                                             where t.path = p.path and t.service_id = s.service_id and cs.consumer_id = s.consumer_id limit 1) t on true
                        union all
                       (select t.path, 'glob', cs.acked, t.tail
                          from consumer_streams cs join streams t on t.id = any (array[cs.stream_id])
                         where cs.consumer_id = s.consumer_id and cs.link_type = 'glob' and t.path is not null
                         order by cs.stream_id limit p_streams)
                        limit p_streams) l), '[]')
      from subscriptions s
      join consumers c on c.id = any (array[s.consumer_id])
     cross join (select clock_timestamp() as at) n
     where s.id = p_id and s.service_id = p_service
$$;
comment on function rouse.subscription_get(integer, text, integer) is 'A subscription with its mutex and what it watches.';
