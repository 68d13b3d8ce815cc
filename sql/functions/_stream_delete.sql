-- _stream_delete: stream_delete with a chosen time (null = the clock).
create or replace function rouse._stream_delete(p_service integer, p_path text, p_internal boolean, p_now timestamptz)
returns table (outcome text, stream_id bigint)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    s     streams%rowtype;
begin
    select * into s from streams t where t.service_id = p_service and t.path = p_path for update;
    v_now := coalesce(p_now, clock_timestamp());
    stream_id := s.id;
    if s.id is null then
        outcome := 'not_found';
    elsif s.deleted_at is not null then
        outcome := 'gone';
    elsif s.kind <> 'app' and not p_internal then
        outcome := 'guarded';
    else
        outcome := case when s.expires_at <= v_now then 'not_found' else 'deleted' end;
        perform _stream_retire(s.id, v_now);
    end if;
    return next;
end
$$;
comment on function rouse._stream_delete(integer, text, boolean, timestamptz) is 'stream_delete with a chosen time, for tests.';
