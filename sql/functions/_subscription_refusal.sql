-- _subscription_refusal: why a subscription may not name these streams, or null:
-- stream_reserved (a stream of the server), stream_forbidden (guarded, and
-- somebody else's), wake_stream_own (its own wake stream: its wakes would wake
-- it; a pattern passes over wake streams).
create or replace function rouse._subscription_refusal(
    p_service integer, p_paths text[], p_wake_stream text, p_owner text, p_system boolean
) returns text
language sql stable
set search_path = rouse, pg_temp
as $$
    select case
        when p_wake_stream = any (p_paths) then 'wake_stream_own'
        when exists (select from unnest(p_paths) p (path) where left(p.path, 1) = '_') then 'stream_reserved'
        else (select case when s.kind in ('wake', 'error') then 'stream_reserved' else 'stream_forbidden' end
                from streams s
               where s.path = any (p_paths) and s.service_id = p_service
                 and (s.kind in ('wake', 'error') or s.kind = 'entity' and not p_system and s.owner is distinct from p_owner)
               limit 1) end
$$;
comment on function rouse._subscription_refusal(integer, text[], text, text, boolean) is 'Why a subscription may not watch these streams.';
