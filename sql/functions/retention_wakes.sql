-- _retention_wakes, retention_wakes: one step of the walk that removes wakes that
-- were resolved longer ago than p_age_ms, with their delivery attempts: looks at
-- up to p_limit, in the order of their key, a whole walk once every p_period_ms.
create or replace function rouse._retention_wakes(p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamptz)
returns table (seen integer, deleted integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_text  text;
    v_after uuid;
begin
    seen := 0; deleted := 0; more := false;
    select w into v_text from _retention_walk('wakes', p_period_ms, p_now) w;
    if not found then
        return next;
        return;
    end if;
    with page as materialized (
        select n.wake_id, n.service_id, n.resolved_at < p_now - p_age_ms * interval '1 ms' as over
          from wake_notifications n
         where n.wake_id > coalesce(nullif(v_text, ''), '00000000-0000-0000-0000-000000000000')::uuid
         order by n.wake_id limit p_limit
    ), attempts as (
        delete from delivery_attempts d using page p where p.over and d.wake_id = any (array[p.wake_id]) and d.service_id = p.service_id
    ), gone as (
        delete from wake_notifications n using page p where p.over and n.wake_id = any (array[p.wake_id])
        returning 1
    )
    select (select count(*) from page), (select count(*) from gone), (select p.wake_id from page p order by p.wake_id desc limit 1)
      into seen, deleted, v_after;
    more := seen = p_limit;
    perform _retention_walked('wakes', case when more then v_after::text end, p_now);
    return next;
end
$$;
comment on function rouse._retention_wakes(integer, bigint, bigint, timestamptz) is 'retention_wakes at a chosen time.';

create or replace function rouse.retention_wakes(p_limit integer, p_age_ms bigint, p_period_ms bigint)
returns table (seen integer, deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_wakes(p_limit, p_age_ms, p_period_ms, clock_timestamp())
$$;
comment on function rouse.retention_wakes(integer, bigint, bigint) is 'One step of removing wakes that were resolved long ago.';
