-- _glob_find: the subscriptions of a service whose pattern matches a path. The
-- sorted patterns are a tree of segments: the walk goes down along the path's
-- own segments and the wildcards, from each beginning that some pattern has to
-- the longer ones. It costs a few probes of the index for each beginning that
-- matches the path so far, whatever the number of patterns. One beginning may
-- match at each of the path's segments, so paths beyond _glob_sees are none of
-- the patterns'.
create or replace function rouse._glob_find(p_service integer, p_path text)
returns table (consumer_id bigint, owner text, system boolean)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
as $$
declare
    v_seg text[] := string_to_array(p_path, '/');
    v_n   integer := cardinality(v_seg);
begin
    if not _glob_sees(p_path) then
        return;
    end if;
    return query
    with recursive walk (i, at) as (
        select 0, '' collate "C"
         union
        select x.i, x.at
          from walk w
         cross join lateral (
               select w.i, w.at || case when w.at = '' then '**' else '/**' end where w.at <> '**' and w.at not like '%/**'
                union all
               select w.i + 1, w.at || case when w.at = '' then '' else '/' end || y.s
                 from (values ('*'), (_glob_literal(v_seg[w.i + 1]))) y (s) where w.i < v_n
                union all
               select w.i + 1, w.at where w.i < v_n and (w.at = '**' or w.at like '%/**')) x (i, at)
         -- Some pattern begins so. Those that go on within the segment do not count, and cost a step at most.
         where exists (select from subscription_globs g where g.pattern >= x.at and g.pattern < (x.at || '0') collate "C")
    )
    select g.consumer_id, g.owner, g.system
      from (select distinct w.at from walk w where w.i = v_n) w
      join subscription_globs g on g.pattern = any (array[w.at]) and g.service_id = p_service;
end
$$;
comment on function rouse._glob_find(integer, text) is 'The subscriptions whose pattern matches a path.';
