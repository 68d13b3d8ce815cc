-- retention_type_get: the limits of the main streams of a type's entities; no
-- row when it has none.
create or replace function rouse.retention_type_get(p_service_id integer, p_type text)
returns table (max_age_ms bigint, max_bytes bigint, max_count bigint)
language sql stable
set search_path = rouse, pg_temp
as $$
    select t.max_age_ms, t.max_bytes, t.max_count from type_retention t where t.entity_type = p_type and t.service_id = p_service_id
$$;
comment on function rouse.retention_type_get(integer, text) is 'The limits of the main streams of a type''s entities.';
