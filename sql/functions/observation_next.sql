-- observation_next: how many milliseconds from now the next thing of observation
-- is due: a debounce, a timeout, a send, a tick. 0 when one is overdue, null when
-- none is waited for.
create or replace function rouse.observation_next() returns bigint
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
    -- greatest passes over a null, which is to stay one.
    select case when d.due_at is not null then greatest(0, ceil(extract(epoch from d.due_at - clock_timestamp()) * 1000))::bigint end
      from (select least((select min(o.due_at) from observers o where o.due_at is not null),
                         (select min(t.due_at) from scheduled_tasks t where t.due_at is not null)) as due_at) d
$$;
comment on function rouse.observation_next() is 'Milliseconds until the next due time of observation.';
