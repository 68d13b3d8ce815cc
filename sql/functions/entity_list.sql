-- entity_list: entities, newest first. A null filter matches all; p_principal
-- limits the answer to what that principal may see. The cursor is the
-- (created_at, url) of the last row of the page before. Planned anew for each
-- call, so that an absent filter costs nothing and a present one finds its index.
create or replace function rouse.entity_list(
    p_service_id integer, p_principal text, p_type text, p_status text, p_parent text, p_created_by text,
    p_before_at timestamptz, p_before_url text, p_limit integer
) returns setof rouse.entities
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_custom_plan
as $$
begin
    return query
    select e.* from entities e
     where e.service_id = p_service_id
       and (p_principal is null or e.created_by = p_principal)
       and (p_type is null or e.type = p_type)
       and (p_status is null or e.status = p_status)
       and (p_parent is null or e.parent = p_parent)
       and (p_created_by is null or e.created_by = p_created_by)
       and (p_before_at is null or (e.created_at <= p_before_at and (e.created_at < p_before_at or e.url > p_before_url)))
     order by e.created_at desc, e.url
     limit p_limit;
end
$$;
comment on function rouse.entity_list(integer, text, text, text, text, text, timestamptz, text, integer) is 'Entities, newest first, by page.';
