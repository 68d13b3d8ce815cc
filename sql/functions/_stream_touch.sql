-- _stream_touch: stream_touch with a chosen time (null = the clock).
create or replace function rouse._stream_touch(p_stream_id bigint, p_now timestamptz) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_now timestamptz;
    s     streams%rowtype;
begin
    -- Whoever holds the lock writes to the stream, which extends its life too.
    select * into s from streams where id = p_stream_id for no key update skip locked;
    v_now := coalesce(p_now, clock_timestamp());
    if s.id is null or s.ttl_seconds is null or s.path is null or s.deleted_at is not null or s.expires_at <= v_now then
        return false;
    end if;
    update streams set expires_at = _stream_slide(expires_at, ttl_seconds, v_now) where id = p_stream_id;
    return true;
end
$$;
comment on function rouse._stream_touch(bigint, timestamptz) is 'stream_touch with a chosen time, for tests.';
