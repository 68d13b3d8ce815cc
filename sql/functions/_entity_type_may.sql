-- _entity_type_may: _entity_may for an entity type.
create or replace function rouse._entity_type_may(
    p_service_id integer, p_name text, p_principal text, p_permission text, p_now timestamptz
) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return exists (
        select from entity_type_grants g
         where g.entity_type = p_name and g.service_id = p_service_id and g.permission = any (array[p_permission, 'manage'])
           and g.subject_value = case g.subject_kind when 'principal' then p_principal else _principal_kind(p_principal) end
           and (g.expires_at is null or g.expires_at > p_now));
end
$$;
comment on function rouse._entity_type_may(integer, text, text, text, timestamptz) is 'Whether a grant gives a principal a permission on an entity type.';
