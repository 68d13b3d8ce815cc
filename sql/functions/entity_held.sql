-- entity_held: whether a principal holds the live claim of an entity. Who works
-- an entity for others, as a member of their pool, reads its streams meanwhile.
create or replace function rouse.entity_held(p_service_id integer, p_url text, p_principal text) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    return exists (
        select from entities e join consumers c on c.id = any (array[e.consumer_id])
         where e.url = p_url and e.service_id = p_service_id
           and c.state = 'claimed' and c.holder = p_principal and c.runner_id is not null and c.lease_expires_at > clock_timestamp());
end
$$;
comment on function rouse.entity_held(integer, text, text) is 'Whether a principal holds the live claim of an entity.';
