-- entity_type_get: one type; no row when there is none.
create or replace function rouse.entity_type_get(p_service_id integer, p_name text) returns setof rouse.entity_types
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    return query
    select t.* from entity_types t where t.service_id = p_service_id and t.name = p_name;
end
$$;
comment on function rouse.entity_type_get(integer, text) is 'Looks an entity type up by name.';
