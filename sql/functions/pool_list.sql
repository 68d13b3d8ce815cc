-- pool_list: the pools that a principal owns or that one of its runners is in or
-- invited to (p_system: all), by id above p_after, with what pool_get says.
create or replace function rouse.pool_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer)
returns table (pool rouse.worker_pools, members jsonb, active_claims bigint, waiting bigint)
language sql stable
set search_path = rouse, pg_temp
as $$
    select g.* from (
        select w.id from worker_pools w
         where w.service_id = p_service_id and (p_after is null or w.id > p_after)
           and (p_system or w.owner_principal = p_principal
                or exists (select from worker_pool_members m
                            where m.pool_id = w.id and m.service_id = w.service_id and m.owner_principal = p_principal))
         order by w.id limit p_limit) x
     cross join lateral pool_get(p_service_id, x.id) g
     order by x.id
$$;
comment on function rouse.pool_list(integer, text, boolean, text, integer) is 'The worker pools that a principal has to do with.';
