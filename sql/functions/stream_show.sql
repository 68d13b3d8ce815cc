-- stream_show: stream_head, and where what is kept of the stream begins (0: all
-- of it is).
create or replace function rouse.stream_show(p_service integer, p_path text)
returns table (outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean,
               ttl_seconds bigint, expires_at timestamptz, head bigint)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    return query select h.*, (select s.head from streams s where s.id = any (array[h.stream_id])) from _stream_head(p_service, p_path, null) h;
end
$$;
comment on function rouse.stream_show(integer, text) is 'Metadata of a stream, and where it begins.';
