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
      join consumers c on c.id = s.consumer_id
      join consumer_streams cs on cs.consumer_id = c.id and cs.stream_id = s.id
     where s.pending and s.id > p_after and s.path is not null
       and c.state = 'idle' and not c.paused and s.actionable > cs.acked
     order by s.id
     limit p_limit
$$;
comment on function rouse.dispatch_scan(bigint, integer) is 'Streams whose idle consumers have work nobody was told about.';
