-- _retention_uncount: takes what a trim from one position to another takes off
-- the count of a stream with a limit by count, while the rows are still there.
-- The caller holds the stream's row.
create or replace function rouse._retention_uncount(p_stream_id bigint, p_from bigint, p_to bigint) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
begin
    update stream_retention r
       set counted = greatest(r.counted - coalesce((
               select sum(m.count)
                 from _stream_chain(p_stream_id, least(p_to, r.counted_to)) k
                cross join lateral (select m.count from messages m
                                     where m.stream_id = k.stream_id and m.position > greatest(k.lo, p_from) and m.position <= k.hi) m), 0), 0)
     where r.stream_id = p_stream_id and r.counted_to > p_from;
end
$$;
comment on function rouse._retention_uncount(bigint, bigint, bigint) is 'Takes what a trim takes off the count of a stream with a limit by count.';
