-- _shared_state_link: an entity begins to use a shared state. The first to do so
-- may, if there is nothing yet; after that, only who may write one of the
-- entities that use it already. Whether it was linked.
create or replace function rouse._shared_state_link(
    p_service_id integer, p_path text, p_entity_url text, p_manifest_key text, p_principal text, p_trusted boolean
) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    if not exists (select from shared_state_links l where l.path = p_path and l.service_id = p_service_id) then
        -- Two that are first at once: one of them is.
        perform pg_advisory_xact_lock(hashtextextended('shared ' || p_service_id || ' ' || p_path, 0));
    end if;
    if not p_trusted
       and (exists (select from shared_state_links l where l.path = p_path and l.service_id = p_service_id)
            or exists (select from streams s where s.path = p_path and s.service_id = p_service_id and s.deleted_at is null))
       and not _shared_state_may(p_service_id, p_principal, 'write', p_path) then
        return false;
    end if;
    insert into shared_state_links (service_id, path, entity_url, manifest_key)
    values (p_service_id, p_path, p_entity_url, p_manifest_key) on conflict do nothing;
    return true;
end
$$;
comment on function rouse._shared_state_link is 'Links an entity to a shared state.';
