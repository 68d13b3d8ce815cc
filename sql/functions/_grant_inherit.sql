-- _grant_inherit: what a new child gets of its parent: the effect of the grants
-- that propagate to descendants, and copies of those that are copied to
-- children. p_by is who makes the child. The caller holds the tree's lock.
create or replace function rouse._grant_inherit(p_service_id integer, p_child text, p_parent text, p_by text, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    insert into entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value, expires_at, created_at)
    select p_service_id, p_child, p.source_entity_url, p.source_grant_id, p.permission, p.subject_kind, p.subject_value, p.expires_at, p_now
      from entity_effective_permissions p
      join entity_grants g on g.id = any (array[p.source_grant_id])
     where p.entity_url = p_parent and p.service_id = p_service_id and g.propagation = 'descendants'
       and (p.expires_at is null or p.expires_at > p_now);
    perform _grant_add(p_service_id, p_child, p_by, p_now, (
        select jsonb_agg(jsonb_build_object('permission', g.permission, 'subject_kind', g.subject_kind, 'subject_value', g.subject_value,
                                            'copy_to_children', true, 'expires_at', g.expires_at) order by g.id)
          from entity_grants g
         where g.entity_url = p_parent and g.service_id = p_service_id and g.copy_to_children
           and (g.expires_at is null or g.expires_at > p_now)));
end
$$;
comment on function rouse._grant_inherit(integer, text, text, text, timestamptz) is 'Gives a new child what its parent''s grants say.';
