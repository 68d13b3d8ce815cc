-- entity_dispatch: an entity's dispatch state as UIs read it; no row when
-- there is no such entity.
create or replace function rouse.entity_dispatch(p_service_id integer, p_url text) returns setof rouse.entity_dispatch_state
language sql stable
set search_path = rouse, pg_temp
as $$
    select d.* from entity_dispatch_state d where d.service_id = p_service_id and d.entity_url = p_url
$$;
comment on function rouse.entity_dispatch(integer, text) is 'The dispatch state of one entity.';
