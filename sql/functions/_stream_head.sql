-- _stream_head: stream_head with a chosen time (null = the clock).
create or replace function rouse._stream_head(p_service integer, p_path text, p_now timestamptz)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz)
language sql stable
set search_path = rouse, pg_temp
as $$
    select case when s.id is null or s.deleted_at is null and s.expires_at <= coalesce(p_now, clock_timestamp()) then 'not_found'
                when s.deleted_at is not null then 'gone'
                else 'ok' end,
           s.id, s.kind, s.owner, s.content_type, s.tail, s.closed_at is not null, s.ttl_seconds, s.expires_at
      from (values (1)) one
      left join streams s on s.service_id = p_service and s.path = p_path
$$;
comment on function rouse._stream_head(integer, text, timestamptz) is 'stream_head with a chosen time, for tests.';
