-- subscription_scan: the certainty behind the router's latency, for
-- subscriptions: idle ones with work, one stream of each, in consumer order
-- after p_after, at most p_limit. Nothing is changed; the caller hands the
-- streams to dispatch_route. It steps from one subscription with unread links to
-- the next, so it costs those, not the links and not what is up to date. A row
-- whose stream is null only says how far the scan has come.
create or replace function rouse.subscription_scan(p_after bigint, p_limit integer)
returns table (consumer_id bigint, stream_id bigint, "position" bigint)
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
    with recursive behind as (
        (select cs.consumer_id, 1 as n from consumer_streams cs
          where cs.behind and case when cs.behind then cs.consumer_id end > p_after order by case when cs.behind then cs.consumer_id end limit 1)
        union all
        select x.consumer_id, b.n + 1
          from behind b
         cross join lateral (select cs.consumer_id from consumer_streams cs
                              where cs.behind and case when cs.behind then cs.consumer_id end > b.consumer_id
                              order by case when cs.behind then cs.consumer_id end limit 1) x
         where b.n < p_limit
    )
    select b.consumer_id, w.id, w.tail
      from behind b
      left join lateral (
           select s.id, s.tail
             -- First of all whether it is idle: a busy one may have many unread links.
             from (select c.id from consumers c where c.id = b.consumer_id and c.state = 'idle' and not c.paused limit 1) c
             join consumer_streams cs on case when cs.behind then cs.consumer_id end = c.id and cs.behind
             join streams s on s.id = any (array[cs.stream_id]) and s.tail > cs.acked and s.path is not null
            limit 1) w on true
     order by b.consumer_id
$$;
comment on function rouse.subscription_scan(bigint, integer) is 'Streams whose idle subscriptions have work nobody was told about.';
