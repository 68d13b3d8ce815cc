-- entity_display_get: the display row of one entity; no row when there is none.
create or replace function rouse.entity_display_get(p_service_id integer, p_url text) returns setof rouse.entity_display
language sql stable
set search_path = rouse, pg_temp
as $$
    select v.* from entity_display v where v.service_id = p_service_id and v.url = p_url
$$;
comment on function rouse.entity_display_get(integer, text) is 'What a UI says about one entity.';
