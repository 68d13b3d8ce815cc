-- entity_claims: the grants of an entity's mutex, newest first, below an epoch.
create or replace function rouse.entity_claims(p_service_id integer, p_url text, p_before bigint, p_limit integer)
returns setof rouse.consumer_claims
language sql stable
set search_path = rouse, pg_temp
as $$
    select k.* from consumer_claims k
     where k.consumer_id = (select c.name from entities e join consumers c on c.id = e.consumer_id
                             where e.service_id = p_service_id and e.url = p_url)
       and k.service_id = p_service_id and (p_before is null or k.epoch < p_before)
     order by k.epoch desc
     limit p_limit
$$;
comment on function rouse.entity_claims(integer, text, bigint, integer) is 'The claims of one entity, newest first.';
