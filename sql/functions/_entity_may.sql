-- _entity_may: whether a grant in force at p_now lets a principal do something
-- to an entity: a grant of that permission or of manage, to the principal or to
-- its kind. Ownership is for the caller to look at first; it costs nothing.
create or replace function rouse._entity_may(
    p_service_id integer, p_url text, p_principal text, p_permission text, p_now timestamptz
) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return exists (
        select from entity_effective_permissions p
         where p.subject_value = any (array[p_principal, _principal_kind(p_principal)])
           and p.permission = any (array[p_permission, 'manage'])
           and p.entity_url = p_url and p.service_id = p_service_id
           and (p.subject_kind = 'principal') = (p.subject_value = p_principal)
           and (p.expires_at is null or p.expires_at > p_now));
end
$$;
comment on function rouse._entity_may(integer, text, text, text, timestamptz) is 'Whether a grant gives a principal a permission on an entity.';
