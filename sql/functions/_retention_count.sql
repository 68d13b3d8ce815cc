-- _retention_count: up to where a stream is to be trimmed to hold at most
-- p_count messages, null for nowhere. Each append is counted once as it comes
-- and once as it goes, at most 50 000 of either in one call: a stream that has
-- more is dealt with over several. Trims for other reasons take off what they
-- take (_retention_uncount).
create or replace function rouse._retention_count(p_stream_id bigint, p_count bigint) returns bigint
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    s      streams%rowtype;
    x      stream_retention%rowtype;
    v_rows bigint;
    v_n    bigint;
    v_end  bigint;
    v_to   bigint;
begin
    select * into x from stream_retention t where t.stream_id = p_stream_id for update;
    select * into s from streams t where t.id = p_stream_id;  -- a trim that was waited for has moved its head
    select count(*), coalesce(sum(m.count), 0), max(m.position) into v_rows, v_n, v_end
      from (select m.count, m.position
              from _stream_chain(s.id, s.tail) k
             cross join lateral (select m.count, m.position from messages m
                                  where m.stream_id = k.stream_id and m.position > greatest(k.lo, x.counted_to, s.head) and m.position <= k.hi
                                  order by m.position limit 50000) m
             order by m.position limit 50000) m;
    x.counted := x.counted + v_n;
    x.counted_to := coalesce(v_end, x.counted_to);
    update stream_retention t set counted = x.counted, counted_to = x.counted_to where t.stream_id = p_stream_id;
    if x.counted <= p_count then
        return null;
    end if;
    select max(m.position) into v_to
      from (select m.position, sum(m.count) over (order by m.position) as upto
              from (select m.count, m.position
                      from _stream_chain(s.id, s.tail) k
                     cross join lateral (select m.count, m.position from messages m
                                          where m.stream_id = k.stream_id and m.position > greatest(k.lo, s.head) and m.position <= least(k.hi, x.counted_to)
                                          order by m.position limit 50000) m
                     order by m.position limit 50000) m) m
     where m.upto <= x.counted - p_count;
    return v_to;
end
$$;
comment on function rouse._retention_count(bigint, bigint) is 'Up to where a stream is to be trimmed to hold at most so many messages.';
