-- entity_get: one entity; no row when there is none.
create or replace function rouse.entity_get(p_service_id integer, p_url text) returns setof rouse.entities
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
as $$
begin
    return query
    select e.* from entities e where e.service_id = p_service_id and e.url = p_url;
end
$$;
comment on function rouse.entity_get(integer, text) is 'Looks an entity up by url.';
