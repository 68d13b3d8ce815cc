-- _stream_purge: stream_purge with a chosen time (null = the clock).
create or replace function rouse._stream_purge(p_limit integer, p_now timestamptz)
returns table (expired integer, messages integer, streams integer)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := coalesce(p_now, clock_timestamp());
    v_n   integer;
    v_left integer := p_limit;
    r     record;
begin
    expired := 0; messages := 0; streams := 0;
    for r in
        select t.id from rouse.streams t
         where t.expires_at <= v_now and t.deleted_at is null and t.path is not null
         order by t.expires_at limit p_limit
           for update skip locked
    loop
        perform _stream_retire(r.id, v_now);
        expired := expired + 1;
    end loop;
    for r in
        select t.id from rouse.streams t where t.path is null order by t.id limit p_limit for update skip locked
    loop
        exit when v_left <= 0;
        delete from rouse.messages x
         where x.stream_id = r.id
           and x.position <= (select max(y.position)
                                from (select position from rouse.messages
                                       where stream_id = r.id order by position limit v_left) y);
        get diagnostics v_n = row_count;
        messages := messages + v_n;
        v_left := v_left - v_n;
        if not exists (select 1 from rouse.messages where stream_id = r.id) then
            delete from consumer_streams where stream_id = r.id;
            delete from rouse.streams where id = r.id;
            streams := streams + 1;
        end if;
    end loop;
    return next;
end
$$;
comment on function rouse._stream_purge(integer, timestamptz) is 'stream_purge with a chosen time, for tests.';
