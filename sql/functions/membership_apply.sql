-- membership_apply: tells membership streams of at most p_limit changes of
-- entities, each from what the entity is now, so that the order of changes does
-- not matter. The word that a change left goes in the same transaction. Answers
-- how many it took.
create or replace function rouse.membership_apply(p_limit integer) returns integer
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_services integer[];
    v_urls     text[];
    m          memberships%rowtype;
    r          record;
begin
    with taken as (
        delete from membership_changes c
         where c.id in (select x.id from membership_changes x order by x.id limit p_limit for update skip locked)
        returning c.service_id, c.entity_url
    )
    select array_agg(t.service_id), array_agg(t.entity_url) into v_services, v_urls from taken t;
    if v_urls is null then
        return 0;
    end if;
    perform _membership_lock(u) from (select distinct u from unnest(v_services) u order by u) x (u);
    -- By the membership's id, so that no two callers wait for each other.
    for r in
        select x.id, array_agg(distinct u.url) as urls
          from unnest(v_services, v_urls) u (service_id, url)
          left join lateral (select e.tags from entities e where e.url = u.url and e.service_id = u.service_id limit 1) e on true
         cross join lateral (select k.id from memberships k
                              where k.service_id = u.service_id
                                and (e.tags @> k.tags or exists (select from membership_members mm where mm.membership_id = k.id and mm.entity_url = u.url))) x
         group by x.id order by x.id
    loop
        select * into m from memberships k where k.id = r.id for update;
        if found then
            perform _membership_show(m, u, clock_timestamp()) from unnest(r.urls) u;
        end if;
    end loop;
    return cardinality(v_urls);
end
$$;
comment on function rouse.membership_apply(integer) is 'Tells membership streams of changed entities.';
