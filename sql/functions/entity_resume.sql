-- entity_resume: a paused entity that is sent a message goes on: idle (or
-- running, if somebody still holds it), and woken for what is pending.
-- Outcomes: resumed, unchanged, not_found.
create or replace function rouse.entity_resume(p_service_id integer, p_url text) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_entity   entities;
    v_consumer consumers;
    v_now      timestamptz;
begin
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return 'not_found';
    end if;
    select * into v_consumer from consumers c where c.id = v_entity.consumer_id for update;
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url for no key update;
    if v_entity.status <> 'paused' then
        return 'unchanged';
    end if;
    v_now := clock_timestamp();
    update entities e
       set status = case when v_consumer.state = 'claimed' and v_consumer.lease_expires_at > v_now then 'running' else 'idle' end,
           updated_at = v_now
     where e.service_id = p_service_id and e.url = p_url;
    perform _consumer_pause(v_consumer.id, false, v_now);
    return 'resumed';
end
$$;
comment on function rouse.entity_resume(integer, text) is 'Lets a paused entity go on.';
