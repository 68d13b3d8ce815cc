-- _stream_read: stream_read with a chosen time (null = the clock).
create or replace function rouse._stream_read(
    p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer, p_max_rows integer, p_now timestamptz)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz, touch boolean,
               next bigint, page bytea, positions bigint[], stamps text)
language plpgsql stable
set search_path = rouse, pg_temp
-- The planner takes the position range for large; the rows wanted are few.
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    v_plain boolean;
    v_from bigint;
    v_lo   bigint;
    v_hi   bigint;
    s      streams%rowtype;
begin
    if p_stream_id is null then
        select * into s from streams t where t.service_id = p_service and t.path = p_path;
    else
        select * into s from streams t where t.id = p_stream_id and t.path is not null;
    end if;
    if s.id is null or s.deleted_at is null and s.expires_at <= v_now then
        outcome := 'not_found';
        return next;
        return;
    end if;
    -- Below zero: from the first message that is kept.
    v_from := case when p_from < 0 then s.head else p_from end;
    outcome := case when s.deleted_at is not null then 'gone' when v_from > s.tail then 'beyond'
                    when v_from < s.head then 'trimmed' else 'ok' end;
    stream_id := s.id; kind := s.kind; owner := s.owner; content_type := s.content_type; tail := s.tail;
    closed := s.closed_at is not null; ttl_seconds := s.ttl_seconds; expires_at := s.expires_at;
    touch := s.ttl_seconds is not null and _stream_slide(s.expires_at, s.ttl_seconds, v_now) > s.expires_at;
    next := case when outcome = 'trimmed' then s.head else coalesce(v_from, s.tail) end;
    if outcome <> 'ok' or next >= s.tail or p_max_bytes <= 0 then
        return next;
        return;
    end if;

    -- Positions count bytes, so a range of positions bounds the page; an append
    -- larger than a page is a page of its own. What lies below a fork's start is
    -- read from its sources.
    v_plain := s.forked_from is null or next >= s.fork_at;
    v_lo := next;
    if v_plain then
        v_hi := (select x.position from messages x where x.stream_id = s.id and x.position > v_lo order by x.position limit 1);
    else
        v_hi := (select min(x.position)
                   from _stream_chain(s.id, s.tail) k
                  cross join lateral (select x.position from messages x
                                       where x.stream_id = k.stream_id and x.position > greatest(k.lo, v_lo) and x.position <= k.hi
                                       order by x.position limit 1) x);
    end if;
    v_hi := least(s.tail, greatest(v_hi, v_lo + p_max_bytes));
    -- One pass over a bounded index range; the aggregates see its order.
    if not v_plain then
        select max(r.position), string_agg(r.payload, case when s.is_json then '\x2c'::bytea else ''::bytea end),
               array_agg(r.position), string_agg(coalesce(r.stamps::text, ''), ';')
          into next, page, positions, stamps
          from (select x.position, x.payload, x.stamps
                  from _stream_chain(s.id, s.tail) k
                 cross join lateral (select * from messages x
                                      where x.stream_id = k.stream_id
                                        and x.position > greatest(k.lo, v_lo) and x.position <= least(k.hi, v_hi)
                                      order by x.position limit p_max_rows) x
                 order by x.position limit p_max_rows) r;
    elsif s.is_json then
        select max(r.position), string_agg(r.payload, '\x2c'::bytea),
               array_agg(r.position), string_agg(coalesce(r.stamps::text, ''), ';')
          into next, page, positions, stamps
          from (select x.position, x.payload, x.stamps from messages x
                 where x.stream_id = s.id and x.position > v_lo and x.position <= v_hi
                 order by x.position limit p_max_rows) r;
    else
        select max(r.position), string_agg(r.payload, ''::bytea)
          into next, page
          from (select x.position, x.payload from messages x
                 where x.stream_id = s.id and x.position > v_lo and x.position <= v_hi
                 order by x.position limit p_max_rows) r;
    end if;
    if next is null then
        raise exception using errcode = 'RS001', message = 'stream rows are missing',
            detail = json_build_object('stream', s.id, 'from', v_lo, 'tail', s.tail)::text;
    end if;
    return next;
end
$$;
comment on function rouse._stream_read is 'stream_read with a chosen time, for tests.';
