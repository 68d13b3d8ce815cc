-- _retention_uncount: takes what a trim from one position to another takes off
-- the count of a stream with a limit by count, while the rows are still there.
-- The caller holds the stream's row, and appends wait for it: where more than
-- 50 000 appends go, what stays is counted anew instead (_retention_count).
create or replace function rouse._retention_uncount(p_stream_id bigint, p_from bigint, p_to bigint) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
declare
    x      stream_retention%rowtype;
    v_rows bigint := 0;
    v_n    bigint;
begin
    select * into x from stream_retention r where r.stream_id = p_stream_id and r.counted_to > p_from for update;
    if not found then
        return;
    end if;
    if x.counted_to > p_to then
        select count(*), sum(m.count) into v_rows, v_n
          from (select m.count
                  from _stream_chain(p_stream_id, p_to) k
                 cross join lateral (select m.count, m.position from messages m
                                      where m.stream_id = k.stream_id and m.position > greatest(k.lo, p_from) and m.position <= k.hi
                                      order by m.position limit 50001) m
                 limit 50001) m;
    end if;
    if x.counted_to <= p_to or v_rows > 50000 then
        update stream_retention r set counted = 0, counted_to = p_to where r.stream_id = p_stream_id;
    else
        update stream_retention r set counted = greatest(x.counted - coalesce(v_n, 0), 0) where r.stream_id = p_stream_id;
    end if;
end
$$;
comment on function rouse._retention_uncount(bigint, bigint, bigint) is 'Takes what a trim takes off the count of a stream with a limit by count.';
