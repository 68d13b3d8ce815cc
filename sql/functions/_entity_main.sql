-- _entity_main: the id of an entity's main stream, by its mutex's own link, so
-- that it does not matter how the entity's url is spelled in the stream's path.
create or replace function rouse._entity_main(p_service_id integer, p_url text) returns bigint
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return (select cs.stream_id from consumer_streams cs
             where cs.consumer_id = (select e.consumer_id from entities e where e.url = p_url and e.service_id = p_service_id)
               and cs.link_type = 'own' limit 1);
end
$$;
comment on function rouse._entity_main(integer, text) is 'The main stream of an entity.';
