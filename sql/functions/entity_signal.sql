-- entity_signal: appends a signal to the entity's stream and carries out what
-- the server handles itself, in one transaction: SIGKILL (killed) and SIGTERM
-- of an entity nobody holds (stopped) close the stream and end the mutex;
-- SIGTERM of a held one asks it to stop; SIGSTOP and SIGCONT pause and resume.
-- Outcomes: signalled, not_found, terminal.
create or replace function rouse.entity_signal(
    p_service_id integer, p_url text, p_principal text, p_signal text, p_key text, p_reason text, p_payload jsonb
) returns table (outcome text, txid bigint, previous_state text, new_state text, created_at timestamptz)
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
    v_stream   bigint;
begin
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return query select 'not_found', null::bigint, null::text, null::text, null::timestamptz;
        return;
    end if;
    -- Lock order: consumer, stream, entity. The clock is read after them.
    select * into v_consumer from consumers c where c.id = v_entity.consumer_id for update;
    select s.id into v_stream from streams s
     where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/main' for no key update;
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url for no key update;
    return query select * from _entity_signal(v_entity, v_consumer, v_stream, p_principal, p_signal, p_key, p_reason, p_payload,
        clock_timestamp());
end
$$;
comment on function rouse.entity_signal(integer, text, text, text, text, text, jsonb) is 'Signals an entity.';
