-- entity_type_allowed: the types among p_names on which the principal has a
-- permission (spawn or manage): it registered the type, or a grant says so that
-- has not expired by the database's clock.
create or replace function rouse.entity_type_allowed(p_service_id integer, p_principal text, p_permission text, p_names text[])
returns setof text
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    return query
    select t.name
      from unnest(p_names) n (name)
     cross join lateral (select t.name, t.owner_principal from entity_types t where t.service_id = p_service_id and t.name = n.name limit 1) t
     where case when t.owner_principal = p_principal then true
                else _entity_type_may(p_service_id, t.name, p_principal, p_permission, v_now) end;
end
$$;
comment on function rouse.entity_type_allowed(integer, text, text, text[]) is 'The entity types among some on which a principal has a permission.';
