-- stream_trim: trims a stream by hand: everything up to p_to, or all of it when
-- p_to is null. Waits for the rows at most lock_timeout. See _stream_trim.
-- Outcomes: trimmed | unchanged | not_found | guarded | beyond (p_to is past
-- the tail).
create or replace function rouse.stream_trim(p_service_id integer, p_path text, p_to bigint, p_force boolean, p_principal text)
returns table (outcome text, head bigint, tail bigint, limited_by text)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    s streams%rowtype;
begin
    select * into s from streams t where t.service_id = p_service_id and t.path = p_path;
    if s.id is null or s.deleted_at is not null or s.expires_at <= clock_timestamp() then
        outcome := 'not_found';
    elsif s.kind = 'wake' then
        outcome := 'guarded';
    elsif p_to > s.tail then
        outcome := 'beyond';
        head := s.head;
        tail := s.tail;
    end if;
    if outcome is not null then
        return next;
        return;
    end if;
    return query select * from _stream_trim(s.id, coalesce(p_to, s.tail), p_force, true, clock_timestamp());
    perform audit_add(p_service_id, p_principal, 'stream.trim', '/' || p_path, jsonb_build_object('to', coalesce(p_to, s.tail), 'force', p_force));
end
$$;
comment on function rouse.stream_trim(integer, text, bigint, boolean, text) is 'Trims a stream by hand.';
