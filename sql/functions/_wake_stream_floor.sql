-- _wake_stream_floor: up to where a wake stream may be trimmed without taking an
-- entry that somebody may still act upon: below the last telling of its oldest
-- open wake, null when none is open. The caller holds the stream's row, so no
-- wake is told meanwhile.
create or replace function rouse._wake_stream_floor(p_service_id integer, p_path text) returns bigint
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_id    text := split_part(p_path, '/', 2);
    v_first text;
begin
    if p_path like 'worker-pools/%' then
        select min(n.runner_wake_stream_offset) into v_first from wake_notifications n
         where n.target_pool_id = v_id and n.service_id = p_service_id and n.resolved_at is null
           and n.runner_wake_stream = '/' || p_path;
    else
        select min(n.runner_wake_stream_offset) into v_first from wake_notifications n
         where n.target_runner_id = v_id and n.service_id = p_service_id and n.resolved_at is null
           and n.runner_wake_stream = '/' || p_path;
    end if;
    -- An offset is where its entry ends; the byte before that is inside it.
    return split_part(v_first, '_', 2)::bigint - 1;
end
$$;
comment on function rouse._wake_stream_floor(integer, text) is 'Up to where a wake stream holds nothing of an open wake.';
