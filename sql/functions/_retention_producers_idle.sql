-- _retention_producers_idle: forgets the producers of streams nothing was
-- appended to since p_before: looks at the streams of up to p_limit producers
-- that follow stream p_after, and returns where the look ended and whether it
-- did before it had seen as many. A producer that comes back then begins a new
-- epoch at sequence 0; a repeat of what it sent before is not recognised any
-- more. Streams that somebody has locked are being appended to, or are left for
-- the next walk.
create or replace function rouse._retention_producers_idle(
    p_after text, p_limit integer, p_before timestamptz, p_now timestamptz, out seen integer, out deleted integer, out at text, out cut boolean
)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
declare
    v_after   bigint := coalesce(nullif(p_after, ''), '0')::bigint;
    v_n       integer;
    v_marked  boolean;
    v_streams integer := 0;
    v_tail    bigint;
    m         producer_marks%rowtype;
    r         record;
begin
    seen := 0; deleted := 0; cut := false;
    for r in
        select p.stream_id, count(*)::integer as n
          from (select p.stream_id from producers p where p.stream_id > v_after order by p.stream_id limit p_limit) p
         group by p.stream_id order by p.stream_id
    loop
        seen := seen + r.n;
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
        elsif m.at <= p_before then
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
                if v_n >= p_limit then
                    cut := true;  -- this stream again in the next step
                    exit;
                end if;
                delete from producer_marks t where t.stream_id = r.stream_id;
                v_streams := v_streams + 1;
            end if;
        end if;
        v_after := r.stream_id;
        cut := v_streams = 20;  -- locked until the end of the step
        exit when cut;
    end loop;
    at := v_after;
end
$$;
comment on function rouse._retention_producers_idle(text, integer, timestamptz, timestamptz) is 'Forgets the producers of some streams that are idle since a time.';
