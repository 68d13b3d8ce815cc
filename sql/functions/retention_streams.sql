-- _retention_streams, retention_streams: one step of the walk over the streams
-- that have limits: looks at up to p_limit of them, at each once every
-- p_period_ms, and trims what is too old, too many bytes or too many messages,
-- never beyond what somebody has still to read (_stream_trim). Limits are
-- coarse: a stream may hold more until the next look, and of the newest append
-- always all. Streams that somebody has locked are left for the next walk.
create or replace function rouse._retention_streams(p_limit integer, p_period_ms bigint, p_now timestamptz)
returns table (seen integer, trimmed integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_now   timestamptz := coalesce(p_now, clock_timestamp());
    v_at    text;
    v_to    bigint;
    v_bytes bigint;
    v_until timestamptz := clock_timestamp() + interval '1 s';
    r       record;
begin
    seen := 0; trimmed := 0; more := false;
    select w into v_at from _retention_walk('streams', p_period_ms, v_now) w;
    if not found then
        return next;
        return;
    end if;
    for r in
        select x.stream_id, s.id, s.head, s.tail,
               case when x.own then x.max_age_ms else t.max_age_ms end as age,
               case when x.own then x.max_bytes else t.max_bytes end as bytes,
               case when x.own then x.max_count else t.max_count end as count,
               x.own or t.found is not null as wanted
          from (select * from stream_retention y where y.stream_id > coalesce(nullif(v_at, ''), '0')::bigint order by y.stream_id limit p_limit) x
          left join lateral (select s.id, s.head, s.tail, s.service_id from streams s where s.id = x.stream_id and s.deleted_at is null limit 1) s on true
          left join lateral (select true as found, y.max_age_ms, y.max_bytes, y.max_count from type_retention y
                              where y.entity_type = x.entity_type and y.service_id = s.service_id limit 1) t on true
         order by x.stream_id
    loop
        if trimmed = 25 or seen > 0 and clock_timestamp() > v_until then
            more := true;
            exit;
        end if;
        seen := seen + 1;
        v_at := r.stream_id;
        if r.id is null or not r.wanted then
            if r.id is not null then
                delete from stream_retention x where x.stream_id = r.stream_id;
                delete from stream_marks m where m.stream_id = r.stream_id;
            end if;
            continue;
        end if;
        v_to := null;
        if r.age is not null then
            v_to := _retention_mark(r.id, r.age, p_now);
        end if;
        if r.bytes < r.tail - r.head then
            -- The first append that fits, but never the newest with it.
            select max(x.position) into v_bytes
              from (select x.position from _stream_chain(r.id, r.tail) k
                     cross join lateral (select x.position from messages x
                                          where x.stream_id = k.stream_id and x.position > greatest(k.lo, r.head)
                                            and x.position >= r.tail - r.bytes and x.position <= k.hi
                                          order by x.position limit 2) x
                     order by x.position limit 1) x
             where x.position < r.tail;
            v_bytes := coalesce(v_bytes, r.tail - r.bytes);
            v_to := greatest(v_to, v_bytes);
        end if;
        if r.count is not null then
            v_to := greatest(v_to, _retention_count(r.id, r.count));
        end if;
        if v_to > r.head and exists (select from _stream_trim(r.id, v_to, false, false, v_now) t where t.outcome = 'trimmed') then
            trimmed := trimmed + 1;
            -- Their locks are held until the end of the step, which is soon.
            v_until := least(v_until, clock_timestamp() + interval '15 ms');
        end if;
    end loop;
    more := more or seen = p_limit;
    perform _retention_walked('streams', case when more then v_at end, v_now);
    return next;
end
$$;
comment on function rouse._retention_streams(integer, bigint, timestamptz) is 'retention_streams at a chosen time.';

create or replace function rouse.retention_streams(p_limit integer, p_period_ms bigint)
returns table (seen integer, trimmed integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_streams(p_limit, p_period_ms, null)
$$;
comment on function rouse.retention_streams(integer, bigint) is 'One step of the walk over the streams with limits.';
