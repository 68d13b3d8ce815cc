-- entity_type_list: the types of a service by name; with an owner, only the
-- types that principal registered.
create or replace function rouse.entity_type_list(p_service_id integer, p_owner text) returns setof rouse.entity_types
language sql stable
set search_path = rouse, pg_temp
as $$
    select t.* from entity_types t
     where t.service_id = p_service_id and (p_owner is null or t.owner_principal = p_owner)
     order by t.name
$$;
comment on function rouse.entity_type_list(integer, text) is 'The entity types of a service.';
