-- retention_type_put: sets the limits of the main streams of a type's entities,
-- those that exist included; all null removes them. Outcomes: set | deleted |
-- unchanged.
create or replace function rouse.retention_type_put(
    p_service_id integer, p_type text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_principal text)
returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    if coalesce(p_max_age_ms, p_max_bytes, p_max_count) is null then
        delete from type_retention t where t.entity_type = p_type and t.service_id = p_service_id;
        if not found then
            return 'unchanged';
        end if;
        perform audit_add(p_service_id, p_principal, 'retention.type_delete', p_type, null);
        return 'deleted';
    end if;
    insert into type_retention as t (service_id, entity_type, max_age_ms, max_bytes, max_count)
    values (p_service_id, p_type, p_max_age_ms, p_max_bytes, p_max_count)
    on conflict on constraint type_retention_pkey do update
       set max_age_ms = excluded.max_age_ms, max_bytes = excluded.max_bytes, max_count = excluded.max_count, updated_at = clock_timestamp()
     where (t.max_age_ms, t.max_bytes, t.max_count) is distinct from (excluded.max_age_ms, excluded.max_bytes, excluded.max_count);
    if not found then
        return 'unchanged';
    end if;
    perform audit_add(p_service_id, p_principal, 'retention.type_put', p_type,
        jsonb_strip_nulls(jsonb_build_object('max_age_ms', p_max_age_ms, 'max_bytes', p_max_bytes, 'max_count', p_max_count)));
    return 'set';
end
$$;
comment on function rouse.retention_type_put(integer, text, bigint, bigint, bigint, text) is 'Sets the limits of the main streams of a type''s entities.';
