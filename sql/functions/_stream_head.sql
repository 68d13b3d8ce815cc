-- _stream_head: stream_head with a chosen time (null = the clock).
create or replace function rouse._stream_head(p_service integer, p_path text, p_now timestamptz)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    s streams%rowtype;
begin
    select * into s from streams t where t.service_id = p_service and t.path = p_path;
    outcome := case when s.id is null or s.deleted_at is null and s.expires_at <= coalesce(p_now, clock_timestamp()) then 'not_found'
                    when s.deleted_at is not null then 'gone'
                    else 'ok' end;
    stream_id := s.id; kind := s.kind; owner := s.owner; content_type := s.content_type; tail := s.tail;
    closed := s.closed_at is not null; ttl_seconds := s.ttl_seconds; expires_at := s.expires_at;
    return next;
end
$$;
comment on function rouse._stream_head(integer, text, timestamptz) is 'stream_head with a chosen time, for tests.';
