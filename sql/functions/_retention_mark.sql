-- _retention_mark: notes where a stream's tail is now, if it has moved since the
-- last note and that is older than a twenty-fourth of the age (at least 1 s, at
-- most 1 h or a 240th of the age, so that a stream has no more notes than that),
-- and returns the newest tail that is as old as p_age_ms. The coarseness only ever
-- keeps messages for longer. Of the notes older than that, the newest alone is
-- of use; those that the clock was set back behind count from now.
create or replace function rouse._retention_mark(p_stream_id bigint, p_age_ms bigint, p_now timestamptz) returns bigint
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    s      streams%rowtype;
    m      stream_marks%rowtype;
    v_now  timestamptz;
    v_last timestamptz;
    v_tail bigint;
begin
    select * into m from stream_marks t where t.stream_id = p_stream_id order by t.at desc limit 1;
    select * into s from streams t where t.id = p_stream_id;
    -- After the look at the tail, so that nothing below it is younger than the note.
    v_now := coalesce(p_now, clock_timestamp());
    if m.at > v_now then
        delete from stream_marks t where t.stream_id = p_stream_id and t.at >= v_now;
        insert into stream_marks (stream_id, at, tail) values (p_stream_id, v_now, m.tail);
        m.at := v_now;
    end if;
    if s.tail > greatest(m.tail, s.head)
       and (m.at is null or m.at <= v_now - least(greatest(p_age_ms / 24, 1000), greatest(p_age_ms / 240, 3600000)) * interval '1 ms') then
        insert into stream_marks (stream_id, at, tail) values (p_stream_id, v_now, s.tail) on conflict do nothing;
    end if;
    select t.at, t.tail into v_last, v_tail from stream_marks t
     where t.stream_id = p_stream_id and t.at <= v_now - p_age_ms * interval '1 ms' order by t.at desc limit 1;
    if found then
        delete from stream_marks t where t.stream_id = p_stream_id and t.at < v_last;
    end if;
    return v_tail;
end
$$;
comment on function rouse._retention_mark(bigint, bigint, timestamptz) is 'Notes a stream''s tail now and then, and returns the newest that is of an age.';
