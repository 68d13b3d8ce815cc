-- _grant_add: adds grants ([{permission, subject_kind, subject_value,
-- propagation?, copy_to_children?, expires_at?}]) on an entity and what they
-- come to for it and, where they propagate, for its descendants. The caller
-- holds the tree's lock, or has made the entity itself. Returns the last
-- grant's id.
create or replace function rouse._grant_add(p_service_id integer, p_url text, p_by text, p_now timestamptz, p_grants jsonb) returns bigint
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_last bigint;
begin
    if p_grants is null then
        return null;
    end if;
    with recursive g as (
        insert into entity_grants (service_id, entity_url, permission, subject_kind, subject_value, propagation, copy_to_children, expires_at,
                                   created_by, created_at, updated_at)
        select p_service_id, p_url, x.permission, x.subject_kind, x.subject_value, coalesce(x.propagation, 'self'),
               coalesce(x.copy_to_children, false), x.expires_at, p_by, p_now, p_now
          from jsonb_to_recordset(p_grants) as x (permission text, subject_kind text, subject_value text, propagation text,
                                                  copy_to_children boolean, expires_at timestamptz)
        returning *
    ), tree as (
        select p_url collate "C" as url, true as self
        union all
        -- A subquery of its own, so that no plan walks over all entities.
        select e.url, false
          from tree t
         cross join lateral (select e.url from entities e where e.parent = t.url and e.service_id = p_service_id offset 0) e
         where exists (select from jsonb_array_elements(p_grants) x where x ->> 'propagation' = 'descendants')
    ), effect as (
        insert into entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind,
                                                  subject_value, expires_at, created_at)
        select p_service_id, t.url, p_url, g.id, g.permission, g.subject_kind, g.subject_value, g.expires_at, p_now
          from g, tree t where t.self or g.propagation = 'descendants'
    )
    select max(g.id) into v_last from g;
    return v_last;
end
$$;
comment on function rouse._grant_add(integer, text, text, timestamptz, jsonb) is 'Adds grants and what they come to.';
