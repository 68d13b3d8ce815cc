-- observe_take: cursors with something to do, in id order after p_after, at most
-- p_limit, each with a page of what follows it on its source (at least one
-- append, about p_bytes). ended: its subscriber has, or its principal may not read
-- the source any more. A cursor whose due time has come is marked first, in
-- this transaction: whoever applies a cursor finds it marked, so no append waits
-- for its row. Locks nothing else: observe_move moves a cursor only if it is
-- where it was read.
create or replace function rouse.observe_take(p_after bigint, p_limit integer, p_bytes integer)
returns table (id bigint, service_id integer, kind text, subscriber_url text, source_path text, source_url text, condition text,
               one_shot boolean, debounce_ms integer, include_response boolean, principal text, state text, due boolean,
               stream_id bigint, acked bigint, tail bigint, over boolean, ended boolean,
               source_entity text, source_type text, source_parent text, positions bigint[], payloads bytea[])
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
begin
    update observers o set behind = true
     where o.id in (select d.id from observers d where d.due_at <= v_now and not d.behind order by d.due_at limit p_limit for update skip locked);
    return query
    select o.id, o.service_id, o.kind, o.subscriber_url, o.source_path, o.source_url, o.condition,
           o.one_shot, o.debounce_ms, o.include_response, o.principal, o.state, coalesce(o.due_at <= v_now, false),
           o.stream_id, o.acked, coalesce(s.tail, o.acked), coalesce(s.id is not null and (s.closed_at is not null or s.path is null), false),
           coalesce(e.status in ('stopped', 'killed'), true)
               or o.kind = 'wake' and not coalesce(_observe_readable(o.service_id, o.principal, o.trusted, s.path), true),
           src.url, src.type, src.parent, m.positions, m.payloads
      from (select * from observers b where b.behind and b.id > p_after order by b.id limit p_limit) o
      left join lateral (select * from streams s where s.id = o.stream_id limit 1) s on true
      left join lateral (select e.status from entities e where e.url = o.subscriber_url and e.service_id = o.service_id limit 1) e on true
      left join lateral (select c.entity_url from consumers c where c.id = s.consumer_id limit 1) c on true
      left join lateral (select e.url, e.type, e.parent from entities e where e.url = c.entity_url and e.service_id = o.service_id limit 1) src on true
      left join lateral (
           select array_agg(p.position order by p.position) as positions, array_agg(p.payload order by p.position) as payloads
             from (select x.position, x.payload, sum(octet_length(x.payload)) over (order by x.position) - octet_length(x.payload) as before
                     from _stream_chain(s.id, s.tail) k
                    cross join lateral (select * from messages x
                                         where x.stream_id = k.stream_id and x.position > greatest(k.lo, o.acked) and x.position <= k.hi
                                         order by x.position limit 500) x
                    where s.is_json and s.tail > o.acked
                    order by x.position limit 500) p
            where p.before < p_bytes) m on true
     order by o.id;
end
$$;
comment on function rouse.observe_take(bigint, integer, integer) is 'Cursors with something to do, each with what follows it.';
