-- entity_state_gate: what appends of holders are checked against, for many
-- entities at once: the state schemas in force (those fixed at spawn plus what
-- the type has added since; null = anything goes) and whose mutex it is.
-- Answers in the order asked; consumer_id is null where there is no such
-- entity. version changes with the schemas: where it is the known one, the
-- schemas are left out.
create or replace function rouse.entity_state_gate(p_service_id integer[], p_url text[], p_known text[])
returns table (consumer_id bigint, version text, state_schemas jsonb)
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
    select e.consumer_id, v.version,
           case when v.version = q.known then null
                when t.state_schemas is null then e.state_schemas
                else t.state_schemas || coalesce(e.state_schemas, '{}') end
      from unnest(p_service_id, p_url, p_known) with ordinality as q (service_id, url, known, ord)
      left join entities e on e.service_id = q.service_id and e.url = q.url
      left join entity_types t on t.service_id = e.service_id and t.name = e.type
     cross join lateral (select case when e.consumer_id is null then '' else coalesce(t.revision || ' of ' || extract(epoch from t.created_at), 'own') end as version) v
     order by q.ord;
end
$$;
comment on function rouse.entity_state_gate(integer[], text[], text[]) is 'Mutex and state schemas of many entities.';
