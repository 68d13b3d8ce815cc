-- entity_tree: an entity and its descendants, parents before children, with
-- their main streams and mutexes, for a fork. allowed says whether the
-- principal (null: may everything) may fork it. At most p_limit rows.
create or replace function rouse.entity_tree(p_service_id integer, p_url text, p_principal text, p_limit integer)
returns table (entity rouse.entities, stream_id bigint, tail bigint, head bigint, allowed boolean, shared text[])
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
begin
    return query
    with recursive tree as (
        select p_url collate "C" as url, 0 as depth
        union all
        select e.url, t.depth + 1 from tree t join entities e on e.parent = t.url and e.service_id = p_service_id
    ), few as (
        select t.url, t.depth from tree t limit p_limit
    )
    select e::entities, s.id, s.tail, s.head,
           p_principal is null or e.created_by = p_principal or _entity_may(p_service_id, e.url, p_principal, 'fork', v_now),
           array(select l.path from shared_state_links l where l.entity_url = e.url and l.service_id = p_service_id)
      from few t
      join entities e on e.url = t.url and e.service_id = p_service_id
      left join streams s on s.id = _entity_main(p_service_id, e.url)
     order by t.depth, e.created_at, e.url;
end
$$;
comment on function rouse.entity_tree(integer, text, text, integer) is 'An entity and its descendants.';
