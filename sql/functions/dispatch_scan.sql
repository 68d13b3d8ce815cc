-- dispatch_scan: the certainty behind the router's latency: consumers with
-- pending work that are idle, in id order after p_after, at most p_limit.
-- Nothing is changed; the caller hands the streams to dispatch_route. It looks
-- at streams flagged pending only, so it costs what is pending, not what exists.
create or replace function rouse.dispatch_scan(p_after bigint, p_limit integer)
returns table (stream_id bigint, "position" bigint)
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select s.id, s.actionable
      from streams s
     cross join lateral (select from consumers c where c.id = s.consumer_id and c.state = 'idle' and not c.paused limit 1) c
     cross join lateral (select from consumer_streams cs
                          where cs.consumer_id = s.consumer_id and cs.stream_id = s.id and cs.acked < s.actionable limit 1) cs
     where s.pending and s.id > p_after and s.path is not null
     order by s.id
     limit p_limit
$$;
comment on function rouse.dispatch_scan(bigint, integer) is 'Streams whose idle consumers have work nobody was told about.';
