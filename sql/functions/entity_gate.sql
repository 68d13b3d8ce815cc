-- entity_gate: what a send needs to know of many entities at once: their
-- status, whether the principal may write to them (a null one may), and the
-- message schemas in force (those fixed at spawn plus what the type has added
-- since). Answers in the order asked; url is null where there is no such
-- entity, type_exists says which 404 that is. Its plan is made once a session:
-- it is asked for every send.
create or replace function rouse.entity_gate(p_service_id integer[], p_url text[], p_type text[], p_principal text[])
returns table (url text, status text, allowed boolean, type_name text, schema_revision integer, inbox_schemas jsonb, type_exists boolean)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
begin
    return query
    select e.url, e.status::text,
           case when q.principal is null or e.created_by = q.principal then true
                when e.url is null then false
                -- _entity_may without its call, which costs more than the probe.
                else exists (select from entity_effective_permissions p
                              where p.subject_value = any (array[q.principal, split_part(substr(q.principal, 12), '%3A', 1)])
                                and p.permission = any (array['write', 'manage'])
                                and p.entity_url = e.url and p.service_id = q.service_id
                                and (p.subject_kind = 'principal') = (p.subject_value = q.principal)
                                and (p.expires_at is null or p.expires_at > clock_timestamp())) end,
           e.type,
           coalesce(t.revision, e.type_revision),
           case when t.inbox_schemas is null then e.inbox_schemas
                else t.inbox_schemas || coalesce(e.inbox_schemas, '{}') end,
           t.name is not null
      from unnest(p_service_id, p_url, p_type, p_principal) with ordinality as q (service_id, url, type, principal, ord)
      left join entities e on e.service_id = q.service_id and e.url = q.url
      left join entity_types t on t.service_id = q.service_id and t.name = coalesce(e.type, q.type)
     order by q.ord;
end
$$;
comment on function rouse.entity_gate(integer[], text[], text[], text[]) is 'Status, right to write and message schemas of many entities.';
