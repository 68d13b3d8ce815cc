-- consumer_get: a mutex as its owner may see it: state, epoch, holder, what is
-- left of the lease by the database's clock, and the cursor of each stream, at
-- most a thousand. No row when there is none. Holds no token.
create or replace function rouse.consumer_get(p_service_id integer, p_name text)
returns table (name text, kind text, entity_url text, created_by text, state text, paused boolean, epoch bigint, wake_id text,
               holder text, runner_id text, lease_ms bigint, pending boolean, streams jsonb)
language sql stable
set search_path = rouse, pg_temp
as $$
    select c.name, c.kind, c.entity_url, e.created_by,
           case when c.state = 'claimed' and c.lease_expires_at <= n.at then 'expired' else c.state end,
           c.paused, c.epoch, c.wake_id::text, c.holder, c.runner_id,
           case when c.lease_expires_at > n.at then ceil(extract(epoch from c.lease_expires_at - n.at) * 1000)::bigint end,
           _consumer_pending(c.id),
           coalesce((select jsonb_agg(jsonb_build_object('path', '/' || x.path, 'link_type', x.link_type,
                        'acked_offset', _offset(x.acked), 'tail_offset', _offset(x.tail), 'has_pending', x.pending) order by x.path)
                       from (select s.path, cs.link_type, cs.acked, s.tail,
                                    case cs.link_type when 'own' then s.actionable else s.tail end > cs.acked as pending
                               from consumer_streams cs join streams s on s.id = any (array[cs.stream_id])
                              where cs.consumer_id = c.id and s.path is not null limit 1000) x), '[]')
      from consumers c
     cross join (select clock_timestamp() as at) n
      left join entities e on e.service_id = c.service_id and e.url = c.entity_url
     where c.service_id = p_service_id and c.name = p_name
$$;
comment on function rouse.consumer_get(integer, text) is 'A mutex with its cursor, without tokens.';
