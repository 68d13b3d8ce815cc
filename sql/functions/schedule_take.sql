-- schedule_take: what is due, oldest first, with the database's time. Locks
-- nothing: what carries a task out changes it only if it is due as it was read.
create or replace function rouse.schedule_take(p_limit integer)
returns table (id bigint, service_id integer, kind text, due_at timestamptz, planned boolean, entity_url text, message text,
               owner_url text, manifest_key text, manifest text, producer_id text, expression text, timezone text,
               tick_number bigint, now timestamptz)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock_timestamp();
begin
    return query
    select t.id, t.service_id, t.kind, t.due_at, t.planned, t.entity_url, t.message, t.owner_url, t.manifest_key, t.manifest,
           t.producer_id, t.expression, t.timezone, t.tick_number, v_now
      from scheduled_tasks t where t.due_at <= v_now order by t.due_at limit p_limit;
end
$$;
comment on function rouse.schedule_take(integer) is 'Tasks that are due.';
