-- _observer_gone: takes the bit for observers off streams that have none any
-- more, so that appends to them mark nobody. Called last, after observers were
-- removed in the caller's transaction. Only under a stream's row lock, under
-- which alone an observer comes; a stream that somebody else has locked keeps
-- its bit, which costs its appends a probe.
create or replace function rouse._observer_gone(p_streams bigint[]) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_locked bigint[];
begin
    select array_agg(s.id) into v_locked
      from (select s.id from streams s where s.id = any (p_streams) and s.watched & 2 = 2 order by s.id for no key update skip locked) s;
    update streams s set watched = s.watched & ~2
     where s.id = any (v_locked) and not exists (select from observers o where o.stream_id = s.id);
end
$$;
comment on function rouse._observer_gone(bigint[]) is 'Takes the bit for observers off streams that have none any more.';
