-- entity_wakes: the wakes of an entity, newest first, below an epoch.
create or replace function rouse.entity_wakes(p_service_id integer, p_url text, p_before bigint, p_limit integer)
returns setof rouse.wake_notifications
language sql stable
set search_path = rouse, pg_temp
as $$
    select n.* from wake_notifications n
     where n.consumer_id = (select c.name from entities e join consumers c on c.id = e.consumer_id
                             where e.service_id = p_service_id and e.url = p_url)
       and n.service_id = p_service_id and (p_before is null or n.epoch < p_before)
     order by n.epoch desc
     limit p_limit
$$;
comment on function rouse.entity_wakes(integer, text, bigint, integer) is 'The wakes of one entity, newest first.';
