-- _entity_parent: the entity that another is to become the child of. Grants
-- stand still in its tree until then. refusal is parent_not_found,
-- parent_forbidden, parent_not_running, or null when it may have one of
-- p_principal's; a null principal may everything.
create or replace function rouse._entity_parent(
    p_service_id integer, p_url text, p_principal text, out refusal text, out parent rouse.entities
)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    perform _entity_root(p_service_id, p_url, true);
    select * into parent from entities e where e.service_id = p_service_id and e.url = p_url;
    refusal := case
        when not found then 'parent_not_found'
        when not (p_principal is null or parent.created_by = p_principal
                  or _entity_may(p_service_id, p_url, p_principal, 'spawn', clock_timestamp())) then 'parent_forbidden'
        when parent.status in ('stopping', 'stopped', 'killed') then 'parent_not_running' end;
end
$$;
comment on function rouse._entity_parent(integer, text, text) is 'The entity that another is to become the child of, or why it may not.';
