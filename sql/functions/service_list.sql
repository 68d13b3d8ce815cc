-- service_list: all services by name.
create or replace function rouse.service_list() returns setof rouse.services
language sql stable
set search_path = rouse, pg_temp
as $$
    select s.* from services s order by s.name
$$;
comment on function rouse.service_list() is 'All services.';
