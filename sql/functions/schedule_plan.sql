-- schedule_plan: sets when a cron stream ticks first; whether the task was still
-- as it was read.
create or replace function rouse.schedule_plan(p_id bigint, p_due_at timestamptz, p_next timestamptz) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    update scheduled_tasks t set due_at = p_next, planned = true where t.id = p_id and t.due_at = p_due_at and not t.planned;
    return found;
end
$$;
comment on function rouse.schedule_plan(bigint, timestamptz, timestamptz) is 'Sets when a cron stream ticks first.';
