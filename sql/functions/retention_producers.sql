-- _retention_producers, retention_producers: one step of the walk that forgets
-- the producers of streams nothing was appended to for p_age_ms: looks at the
-- streams of up to p_limit producers, a whole walk once every p_period_ms. A
-- producer that comes back then begins a new epoch at sequence 0; a repeat of
-- what it sent before is not recognised any more. Streams that somebody has
-- locked are being appended to, or are left for the next walk.
create or replace function rouse._retention_producers(p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamptz)
returns table (seen integer, deleted integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_text    text;
    v_after   bigint;
    v_n       integer;
    v_last    boolean := false;
    v_marked  boolean;
    v_streams integer := 0;
    v_tail    bigint;
    m         producer_marks%rowtype;
    r         record;
begin
    seen := 0; deleted := 0; more := false;
    select w into v_text from _retention_walk('producers', p_period_ms, p_now) w;
    if not found then
        return next;
        return;
    end if;
    v_after := coalesce(nullif(v_text, ''), '0')::bigint;
    for r in
        select p.stream_id, count(*)::integer as n
          from (select p.stream_id from producers p where p.stream_id > v_after order by p.stream_id limit p_limit) p
         group by p.stream_id order by p.stream_id
    loop
        seen := seen + r.n;
        v_last := false;
        select * into m from producer_marks t where t.stream_id = r.stream_id;
        v_marked := found;
        select s.tail into v_tail from streams s where s.id = r.stream_id;
        if not found then
            v_after := r.stream_id;  -- purged meanwhile, with its producers
            continue;
        end if;
        if not v_marked or m.tail <> v_tail or m.at > p_now then  -- the last: the clock was set back
            insert into producer_marks (stream_id, at, tail) values (r.stream_id, p_now, v_tail)
            on conflict on constraint producer_marks_pkey do update set at = excluded.at, tail = excluded.tail;
        elsif m.at <= p_now - p_age_ms * interval '1 ms' then
            -- An append moves its producer under this lock.
            perform 1 from streams s where s.id = r.stream_id for no key update skip locked;
            if found and exists (select from streams s where s.id = r.stream_id and s.tail = m.tail) then
                delete from producers p
                 where p.stream_id = r.stream_id
                   and p.producer_id <= (select max(y.producer_id)
                                           from (select y.producer_id from producers y where y.stream_id = r.stream_id
                                                  order by y.producer_id limit p_limit) y);
                get diagnostics v_n = row_count;
                deleted := deleted + v_n;
                v_streams := v_streams + 1;
                if v_n < p_limit then
                    delete from producer_marks t where t.stream_id = r.stream_id;
                else
                    v_last := true;  -- this stream again in the next step
                end if;
            end if;
        end if;
        exit when v_last;
        v_after := r.stream_id;
        exit when v_streams = 20;  -- locked until the end of the step
    end loop;
    more := v_last or v_streams = 20 or seen >= p_limit;
    perform _retention_walked('producers', case when more then v_after::text end, p_now);
    return next;
end
$$;
comment on function rouse._retention_producers(integer, bigint, bigint, timestamptz) is 'retention_producers at a chosen time.';

create or replace function rouse.retention_producers(p_limit integer, p_age_ms bigint, p_period_ms bigint)
returns table (seen integer, deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_producers(p_limit, p_age_ms, p_period_ms, clock_timestamp())
$$;
comment on function rouse.retention_producers(integer, bigint, bigint) is 'One step of forgetting the producers of idle streams.';
