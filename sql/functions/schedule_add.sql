-- schedule_add: a message is to be sent to an entity after some milliseconds. With
-- p_producer, which stands for the message, it is sent once, however often it is
-- asked for.
create or replace function rouse.schedule_add(
    p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_message text, p_after_ms bigint, p_producer text
) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    insert into scheduled_tasks (service_id, kind, due_at, entity_url, message, principal, trusted, producer_id)
    select p_service_id, 'delayed_send', clock_timestamp() + make_interval(secs => p_after_ms / 1000.0), p_url, p_message, p_principal, p_trusted, p_producer
     where not exists (select from producers p where p.stream_id = _entity_main(p_service_id, p_url) and p.producer_id = p_producer)
    on conflict (producer_id, entity_url, service_id) where owner_url is null do nothing;
end
$$;
comment on function rouse.schedule_add is 'Schedules a message.';
