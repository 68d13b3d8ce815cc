-- entity_list: entities, newest first. A null filter matches all; p_principal
-- limits the answer to what that principal may read: what it created, and what
-- grants let it read. Principals are listed by their type only. The cursor is the (created_at, url) of the last row of
-- the page before. Planned anew for each call, so that an absent filter costs
-- nothing and a present one finds its index.
create or replace function rouse.entity_list(
    p_service_id integer, p_principal text, p_type text, p_status text, p_parent text, p_created_by text,
    p_before_at timestamptz, p_before_url text, p_limit integer
) returns setof rouse.entities
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
    c_much   constant integer := 10000;
    v_shared integer := 0;
    v_now    timestamptz := clock_timestamp();
begin
    if p_principal is null then
        return query
        select e.* from entities e
         where e.service_id = p_service_id
           and (e.type = p_type or p_type is null and e.type <> 'principal')
           and (p_status is null or e.status = p_status)
           and (p_parent is null or e.parent = p_parent)
           and (p_created_by is null or e.created_by = p_created_by)
           and (p_before_at is null or (e.created_at <= p_before_at and (e.created_at < p_before_at or e.url > p_before_url)))
         order by e.created_at desc, e.url
         limit p_limit;
        return;
    end if;
    -- Its own and what others share are two walks over two indexes; the newest of both are wanted. Where much is shared, the
    -- newest entities are looked at one by one instead of all that are shared.
    select count(*) into v_shared
      from (select from entity_effective_permissions p
             where p.subject_value in (p_principal, _principal_kind(p_principal)) and p.permission in ('read', 'manage')
             limit c_much) x;
    return query
    select x.* from (
        (select e.* from entities e
          where e.service_id = p_service_id and e.created_by = p_principal
            and (e.type = p_type or p_type is null and e.type <> 'principal')
            and (p_status is null or e.status = p_status)
            and (p_parent is null or e.parent = p_parent)
            and (p_created_by is null or e.created_by = p_created_by)
            and (p_before_at is null or (e.created_at <= p_before_at and (e.created_at < p_before_at or e.url > p_before_url)))
          order by e.created_at desc, e.url
          limit p_limit)
        union all
        (select e.* from entities e
          where v_shared < c_much and e.service_id = p_service_id and e.created_by <> p_principal
            and e.url in (select p.entity_url from entity_effective_permissions p
                           where p.subject_value in (p_principal, _principal_kind(p_principal)) and p.permission in ('read', 'manage')
                             and (p.subject_kind = 'principal') = (p.subject_value = p_principal)
                             and p.service_id = p_service_id and (p.expires_at is null or p.expires_at > v_now))
            and (e.type = p_type or p_type is null and e.type <> 'principal')
            and (p_status is null or e.status = p_status)
            and (p_parent is null or e.parent = p_parent)
            and (p_created_by is null or e.created_by = p_created_by)
            and (p_before_at is null or (e.created_at <= p_before_at and (e.created_at < p_before_at or e.url > p_before_url)))
          order by e.created_at desc, e.url
          limit p_limit)
        union all
        (select e.* from entities e
          where v_shared >= c_much and e.service_id = p_service_id
            and case when e.created_by = p_principal then false
                     else exists (select from entity_effective_permissions p
                                   where p.subject_value = any (array[p_principal, _principal_kind(p_principal)]) and p.permission in ('read', 'manage')
                                     and p.entity_url = e.url and p.service_id = p_service_id
                                     and (p.subject_kind = 'principal') = (p.subject_value = p_principal)
                                     and (p.expires_at is null or p.expires_at > v_now)) end
            and (e.type = p_type or p_type is null and e.type <> 'principal')
            and (p_status is null or e.status = p_status)
            and (p_parent is null or e.parent = p_parent)
            and (p_created_by is null or e.created_by = p_created_by)
            and (p_before_at is null or (e.created_at <= p_before_at and (e.created_at < p_before_at or e.url > p_before_url)))
          order by e.created_at desc, e.url
          limit p_limit)) x
     order by x.created_at desc, x.url
     limit p_limit;
end
$$;
comment on function rouse.entity_list(integer, text, text, text, text, text, timestamptz, text, integer) is 'Entities, newest first, by page.';
