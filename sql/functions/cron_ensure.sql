-- cron_ensure: makes the stream that ticks by a cron expression, for whoever is
-- going to observe it. It ticks while somebody does.
create or replace function rouse.cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) returns void
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
begin
    perform _cron_ensure(p_service_id, p_path, p_expression, p_timezone);
end
$$;
comment on function rouse.cron_ensure(integer, text, text, text) is 'Makes a cron stream.';
