-- entity_policy_list: the dispatch policies an entity had before, newest first.
create or replace function rouse.entity_policy_list(p_service_id integer, p_url text) returns setof rouse.entity_policy_history
language sql stable
set search_path = rouse, pg_temp
as $$
    select h.* from entity_policy_history h where h.entity_url = p_url and h.service_id = p_service_id order by h.revision desc
$$;
comment on function rouse.entity_policy_list(integer, text) is 'The dispatch policies an entity had before.';
