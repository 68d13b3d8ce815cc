-- entity_route: where the wake or claim of an entity stands among its policy's
-- targets: the target's index, the wakes since progress, the pool, since when and
-- why its work is parked, and until when its holder has to hand it over.
create or replace function rouse.entity_route(p_service_id integer, p_url text)
returns table (target_index smallint, attempts integer, pool_id text, parked_at timestamptz, parked_reason text, release_by timestamptz)
language sql stable
set search_path = rouse, pg_temp
as $$
    select c.target_index, c.attempts, c.pool_id, c.parked_at, c.parked_reason, c.release_by
      from entities e join consumers c on c.id = e.consumer_id
     where e.url = p_url and e.service_id = p_service_id
$$;
comment on function rouse.entity_route(integer, text) is 'Where an entity''s work stands among its targets.';
