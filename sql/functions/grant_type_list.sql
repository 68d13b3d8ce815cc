-- grant_type_list: the grants on an entity type, oldest first, those that have
-- expired left out.
create or replace function rouse.grant_type_list(p_service_id integer, p_name text) returns setof rouse.entity_type_grants
language sql stable
set search_path = rouse, pg_temp
as $$
    select g.* from entity_type_grants g
     where g.entity_type = p_name and g.service_id = p_service_id and (g.expires_at is null or g.expires_at > clock_timestamp())
     order by g.id
$$;
comment on function rouse.grant_type_list(integer, text) is 'The grants on one entity type.';
