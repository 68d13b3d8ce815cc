-- _grant_type_ensure: adds the grants of a registration that the type does not
-- have yet, and makes those last longer that end sooner there. A registration
-- adds grants and takes none back, for it is repeated whenever its program
-- starts. The caller holds the type's row lock.
create or replace function rouse._grant_type_ensure(p_service_id integer, p_name text, p_by text, p_grants jsonb, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    update entity_type_grants g set expires_at = x.expires_at, updated_at = p_now
      from (select distinct on (y.permission, y.subject_kind, y.subject_value) y.*
              from jsonb_to_recordset(p_grants) as y (permission text, subject_kind text, subject_value text, expires_at timestamptz)
             order by y.permission, y.subject_kind, y.subject_value, y.expires_at desc nulls first) x
     where g.entity_type = p_name and g.service_id = p_service_id and g.permission = x.permission
       and g.subject_kind = x.subject_kind and g.subject_value = x.subject_value
       and g.expires_at < coalesce(x.expires_at, 'infinity');
    insert into entity_type_grants (service_id, entity_type, permission, subject_kind, subject_value, expires_at, created_by, created_at, updated_at)
    select distinct on (x.permission, x.subject_kind, x.subject_value)
           p_service_id, p_name, x.permission, x.subject_kind, x.subject_value, x.expires_at, p_by, p_now, p_now
      from jsonb_to_recordset(p_grants) as x (permission text, subject_kind text, subject_value text, expires_at timestamptz)
     where not exists (select from entity_type_grants g
                        where g.entity_type = p_name and g.service_id = p_service_id and g.permission = x.permission
                          and g.subject_kind = x.subject_kind and g.subject_value = x.subject_value)
     order by x.permission, x.subject_kind, x.subject_value, x.expires_at desc nulls first;
end
$$;
comment on function rouse._grant_type_ensure(integer, text, text, jsonb, timestamptz) is 'Adds the grants of a registration.';
