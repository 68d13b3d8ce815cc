-- retention_delete: a stream has no limits of its own any more; those of its
-- entity's type, if any, hold again. Outcomes: deleted | unchanged | not_found.
create or replace function rouse.retention_delete(p_service_id integer, p_path text, p_principal text) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_id bigint;
begin
    select t.id into v_id from streams t where t.service_id = p_service_id and t.path = p_path and t.deleted_at is null;
    if not found then
        return 'not_found';
    end if;
    -- Without limits the next walk removes the row, unless the type has some.
    update stream_retention t
       set own = false, max_age_ms = null, max_bytes = null, max_count = null, updated_at = clock_timestamp()
     where t.stream_id = v_id and t.own;
    if not found then
        return 'unchanged';
    end if;
    perform audit_add(p_service_id, p_principal, 'retention.delete', '/' || p_path, null);
    return 'deleted';
end
$$;
comment on function rouse.retention_delete(integer, text, text) is 'Removes the limits of a stream.';
