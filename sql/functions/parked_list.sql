-- parked_list: parked work that a principal may redrive: of entities it made or
-- has manage on (p_system: all), by url above p_after. pending_since is since when
-- the oldest of it has waited.
create or replace function rouse.parked_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer)
returns table (entity_url text, type text, reason text, parked_at timestamptz, pending_since timestamptz, attempts integer, last_error text, dispatch_policy jsonb)
language sql stable
set search_path = rouse, pg_temp
as $$
    select c.entity_url, e.type, c.parked_reason, c.parked_at, d.pending_since, c.attempts, d.last_error, e.dispatch_policy
      from consumers c
      join entities e on e.url = any (array[c.entity_url]) and e.service_id = c.service_id
      left join entity_dispatch_state d on d.entity_url = any (array[c.entity_url]) and d.service_id = c.service_id
     where c.parked_at is not null and c.service_id = p_service_id and c.state <> 'stopped' and (p_after is null or c.entity_url > p_after)
       and (p_system or e.created_by = p_principal or _entity_may(p_service_id, e.url, p_principal, 'manage', clock_timestamp()))
     order by c.entity_url limit p_limit
$$;
comment on function rouse.parked_list(integer, text, boolean, text, integer) is 'Parked work, by url.';
