-- entity_policy_page: the dispatch policies an entity had before, newest first:
-- at most p_limit below the revision p_before (null: all).
create or replace function rouse.entity_policy_page(p_service_id integer, p_url text, p_before bigint, p_limit integer)
returns setof rouse.entity_policy_history
language sql stable
set search_path = rouse, pg_temp
as $$
    select h.* from entity_policy_history h
     where h.entity_url = p_url and h.service_id = p_service_id and (p_before is null or h.revision < p_before)
     order by h.revision desc limit p_limit
$$;
comment on function rouse.entity_policy_page(integer, text, bigint, integer) is 'The dispatch policies an entity had before, newest first.';
