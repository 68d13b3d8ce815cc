-- schedule_add: a message is to be sent to an entity after some milliseconds.
create or replace function rouse.schedule_add(p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_message text, p_after_ms bigint) returns void
language sql
set search_path = rouse, pg_temp
as $$
    insert into scheduled_tasks (service_id, kind, due_at, entity_url, message, principal, trusted)
    values (p_service_id, 'delayed_send', clock_timestamp() + make_interval(secs => p_after_ms / 1000.0), p_url, p_message, p_principal, p_trusted)
$$;
comment on function rouse.schedule_add(integer, text, boolean, text, text, bigint) is 'Schedules a message.';
