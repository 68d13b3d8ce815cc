-- shape_access: who may read entities beside system principals: who created
-- each, and the subjects of grants in force: URLs of principals, and kinds of
-- principals. valid_ms is how long that holds if nobody changes a grant; null =
-- for good. No row for an entity that is not there. snapshot says which
-- transactions the answer shows; it is the same in all rows, and in the only
-- row, without a url, when none is found.
create or replace function rouse.shape_access(p_service_id integer, p_urls text[])
returns table (snapshot text, url text, created_by text, subjects text[], valid_ms bigint)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    return query
    select s.snapshot, x.url, x.created_by, x.subjects, x.valid_ms
      from (select pg_current_snapshot()::text) s (snapshot)
      left join lateral (
        select e.url, e.created_by, g.subjects, g.valid_ms
          from unnest(p_urls) u (url)
         cross join lateral (select e.url, e.created_by from entities e where e.url = u.url and e.service_id = p_service_id limit 1) e
         cross join lateral (
            select coalesce(array_agg(distinct p.subject_value), '{}') as subjects,
                   (extract(epoch from min(p.expires_at) - v_now) * 1000)::bigint as valid_ms
              from entity_effective_permissions p
             where p.entity_url = e.url and p.service_id = p_service_id and p.permission = any (array['read', 'manage'])
               and (p.expires_at is null or p.expires_at > v_now)) g) x on true;
end
$$;
comment on function rouse.shape_access(integer, text[]) is 'Who may read some entities, for the log of shapes.';
