-- stream_head: what a stream is, without its content; never extends its life.
-- Outcomes: ok | not_found | gone (deleted, forks still read it).
create or replace function rouse.stream_head(p_service integer, p_path text)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz)
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_head(p_service, p_path, null);
end
$$;
comment on function rouse.stream_head(integer, text) is 'Metadata of a stream.';
