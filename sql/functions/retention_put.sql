-- retention_put: sets the limits of a stream; each null is no limit, all null
-- keeps everything whatever its entity's type says. With p_only_new a stream
-- that has limits of its own keeps them: same when they are these, conflict
-- when not. Outcomes: set | same | conflict | not_found | guarded.
create or replace function rouse.retention_put(
    p_service_id integer, p_path text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_only_new boolean, p_principal text)
returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    s streams%rowtype;
    x stream_retention%rowtype;
begin
    -- Against its deletion, which would take the row with it.
    select * into s from streams t where t.service_id = p_service_id and t.path = p_path for key share;
    if s.id is null or s.deleted_at is not null or s.expires_at <= clock_timestamp() then
        return 'not_found';
    elsif s.kind not in ('app', 'entity', 'error', 'shared', 'cron') then
        return 'guarded';
    end if;
    select * into x from stream_retention t where t.stream_id = s.id for update;
    if x.own and (x.max_age_ms, x.max_bytes, x.max_count) is not distinct from (p_max_age_ms, p_max_bytes, p_max_count) then
        return 'same';
    elsif p_only_new and x.own then
        return 'conflict';
    end if;
    insert into stream_retention as t (stream_id, own, max_age_ms, max_bytes, max_count, counted_to, updated_at)
    values (s.id, true, p_max_age_ms, p_max_bytes, p_max_count, s.head, clock_timestamp())
    on conflict on constraint stream_retention_pkey do update
       set own = true, max_age_ms = excluded.max_age_ms, max_bytes = excluded.max_bytes, max_count = excluded.max_count,
           updated_at = excluded.updated_at;
    perform audit_add(p_service_id, p_principal, 'retention.put', '/' || p_path,
        jsonb_strip_nulls(jsonb_build_object('max_age_ms', p_max_age_ms, 'max_bytes', p_max_bytes, 'max_count', p_max_count)));
    return 'set';
end
$$;
comment on function rouse.retention_put(integer, text, bigint, bigint, bigint, boolean, text) is 'Sets the limits of a stream.';
