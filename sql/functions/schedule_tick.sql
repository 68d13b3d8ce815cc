-- schedule_tick: a due cron stream ticks (p_row) and is due next at p_next, in one
-- transaction: a tick is neither lost nor doubled, whoever crashes. Without an
-- observer the chain ends instead; _cron_ensure begins it again.
-- Outcomes: ticked | ended | stale.
create or replace function rouse.schedule_tick(p_id bigint, p_due_at timestamptz, p_row text, p_next timestamptz) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    t scheduled_tasks%rowtype;
    s streams%rowtype;
begin
    -- The stream before the task, as everywhere.
    select x.* into s from streams x where x.id = (select k.stream_id from scheduled_tasks k where k.id = p_id) for no key update;
    select * into t from scheduled_tasks x where x.id = p_id and x.due_at = p_due_at and x.planned for update skip locked;
    if not found then
        return 'stale';
    end if;
    if s.path is null or s.deleted_at is not null or not exists (
           select from observers o join entities e on e.url = o.subscriber_url and e.service_id = o.service_id
            where o.stream_id = s.id and e.status not in ('stopped', 'killed')) then
        update scheduled_tasks x set due_at = null where x.id = t.id;
        return 'ended';
    end if;
    perform _stream_push(s.id, p_row, false);
    update scheduled_tasks x set due_at = p_next, tick_number = t.tick_number + 1 where x.id = t.id;
    return 'ticked';
end
$$;
comment on function rouse.schedule_tick(bigint, timestamptz, text, timestamptz) is 'Lets a due cron stream tick.';
