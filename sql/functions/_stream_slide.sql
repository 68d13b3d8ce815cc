-- _stream_slide: where a read or write moves the expiry of a stream with a
-- time-to-live. It moves only when that is worth a row version (a twentieth of
-- the time-to-live, at most a minute).
create or replace function rouse._stream_slide(p_expires_at timestamptz, p_ttl_seconds bigint, p_now timestamptz) returns timestamptz
language sql immutable
as $$
    select case when p_expires_at < p_now + make_interval(secs => p_ttl_seconds - least(p_ttl_seconds * 0.05, 60.0))
                then p_now + make_interval(secs => p_ttl_seconds)
                else p_expires_at end
$$;
comment on function rouse._stream_slide(timestamptz, bigint, timestamptz) is 'The expiry of a stream with a time-to-live after a read or write at p_now.';
