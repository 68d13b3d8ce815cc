-- schedule_postpone: a due task that could not be carried out is due again after
-- p_ms, so that it does not stand before those that can be. Nothing is changed if
-- it is not as it was read.
create or replace function rouse.schedule_postpone(p_id bigint, p_due_at timestamptz, p_ms integer) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
begin
    update scheduled_tasks t set due_at = clock_timestamp() + make_interval(secs => p_ms / 1000.0)
     where t.id = p_id and t.due_at = p_due_at;
    return found;
end
$$;
comment on function rouse.schedule_postpone(bigint, timestamptz, integer) is 'Lets a task be due again later.';
