-- service_get: the id of a service's name; no row when there is none.
create or replace function rouse.service_get(p_name text) returns setof rouse.services
language sql stable
set search_path = rouse, pg_temp
as $$
    select s.* from services s where s.name = p_name
$$;
comment on function rouse.service_get(text) is 'Looks a service up by name.';
