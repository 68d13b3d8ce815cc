-- _cron_ensure: makes the stream that ticks by a cron expression and sees that it
-- ticks: a chain that nobody listened to begins again. The next tick is found by
-- the scheduler, from now.
create or replace function rouse._cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_stream bigint;
begin
    select c.stream_id into v_stream from stream_create(p_service_id, p_path, 'application/json', p_kind => 'cron') c
     where c.outcome in ('created', 'exists');
    if v_stream is null then
        return;
    end if;
    insert into scheduled_tasks (service_id, kind, due_at, planned, stream_id, expression, timezone)
    values (p_service_id, 'cron_tick', clock_timestamp(), false, v_stream, p_expression, p_timezone)
    on conflict (stream_id) where stream_id is not null
    do update set due_at = excluded.due_at, planned = false where scheduled_tasks.due_at is null;
end
$$;
comment on function rouse._cron_ensure(integer, text, text, text) is 'Makes a cron stream and sees that it ticks.';
