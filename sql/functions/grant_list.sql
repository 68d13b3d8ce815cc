-- grant_list: the grants on an entity itself, oldest first, those that have
-- expired left out.
create or replace function rouse.grant_list(p_service_id integer, p_url text) returns setof rouse.entity_grants
language sql stable
set search_path = rouse, pg_temp
as $$
    select g.* from entity_grants g
     where g.entity_url = p_url and g.service_id = p_service_id and (g.expires_at is null or g.expires_at > clock_timestamp())
     order by g.id
$$;
comment on function rouse.grant_list(integer, text) is 'The grants on one entity.';
