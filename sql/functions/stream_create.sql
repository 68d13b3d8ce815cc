-- stream_create: makes a stream, empty or with a first append; the same call
-- again is answered by 'exists'. An expired stream counts as absent.
-- A fork (p_fork_path) reads its source up to p_fork_offset (null = its tail)
-- plus the first p_fork_sub bytes (JSON: messages) of the append after it; type,
-- and time-to-live or expiry, are the source's unless given.
-- Subscriptions that watch the name are linked in the same transaction; what the
-- stream is made with is new to them.
--
-- Outcomes: created | exists | conflict (other configuration) | gone (deleted,
-- but forks still read it) | guarded (a stream of the control plane) |
-- source_not_found | source_gone | content_type | fork_offset (no append ends
-- there) | fork_sub (beyond that append) | busy (call again).
create or replace function rouse.stream_create(
    p_service integer, p_path text, p_content_type text default null, p_ttl_seconds bigint default null,
    p_expires_at timestamptz default null, p_closed boolean default false,
    p_payload bytea default null, p_count integer default 1, p_stamps integer[] default null,
    p_fork_path text default null, p_fork_offset bigint default null, p_fork_sub bigint default null,
    p_kind text default 'app', p_owner text default null, p_consumer_id bigint default null)
returns table (outcome text, stream_id bigint, tail bigint, closed boolean, content_type text)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_create(p_service, p_path, p_content_type, p_ttl_seconds, p_expires_at, p_closed,
        p_payload, p_count, p_stamps, p_fork_path, p_fork_offset, p_fork_sub, p_kind, p_owner, p_consumer_id, null);
end
$$;
comment on function rouse.stream_create is 'Creates a stream or a fork; idempotent for the same configuration.';
