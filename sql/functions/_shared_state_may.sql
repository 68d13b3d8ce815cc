-- _shared_state_may: whether a principal has a permission on one of the entities
-- that a shared state belongs to.
create or replace function rouse._shared_state_may(p_service_id integer, p_principal text, p_permission text, p_path text) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return exists (select from entity_allowed(p_service_id, p_principal, p_permission,
        array(select distinct l.entity_url from shared_state_links l where l.path = p_path and l.service_id = p_service_id)));
end
$$;
comment on function rouse._shared_state_may(integer, text, text, text) is 'Whether a principal may read or write a shared state.';
