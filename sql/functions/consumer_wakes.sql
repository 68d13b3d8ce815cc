-- consumer_wakes: the wakes of a consumer by its name, newest first, below an
-- epoch.
create or replace function rouse.consumer_wakes(p_service_id integer, p_consumer text, p_before bigint, p_limit integer)
returns setof rouse.wake_notifications
language sql stable
set search_path = rouse, pg_temp
as $$
    select n.* from wake_notifications n
     where n.consumer_id = p_consumer and n.service_id = p_service_id and (p_before is null or n.epoch < p_before)
     order by n.epoch desc
     limit p_limit
$$;
comment on function rouse.consumer_wakes(integer, text, bigint, integer) is 'The wakes of one consumer, newest first.';
