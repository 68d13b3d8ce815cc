-- entity_allowed: the urls among p_urls to which the principal may do
-- p_permission (read, write, delete, signal, fork, schedule, spawn, manage):
-- it created the entity, or a grant says so that has not expired by the
-- database's clock. System principals pass every check; their caller does not
-- ask. _entity_allowed is the same at a chosen time.
create or replace function rouse._entity_allowed(
    p_service_id integer, p_principal text, p_permission text, p_urls text[], p_now timestamptz
) returns setof text
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return query
    select e.url
      from unnest(p_urls) u (url)
     cross join lateral (select e.url, e.created_by from entities e where e.url = u.url and e.service_id = p_service_id limit 1) e
     where case when e.created_by = p_principal then true
                else _entity_may(p_service_id, e.url, p_principal, p_permission, p_now) end;
end
$$;
comment on function rouse._entity_allowed(integer, text, text, text[], timestamptz) is 'entity_allowed at a chosen time.';

create or replace function rouse.entity_allowed(p_service_id integer, p_principal text, p_permission text, p_urls text[])
returns setof text
language sql stable
set search_path = rouse, pg_temp
as $$
    select _entity_allowed(p_service_id, p_principal, p_permission, p_urls, clock_timestamp())
$$;
comment on function rouse.entity_allowed(integer, text, text, text[]) is 'The entities among some to which a principal may do something.';
