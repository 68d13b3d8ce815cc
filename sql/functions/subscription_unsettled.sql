-- subscription_unsettled: subscriptions whose existing streams nobody has
-- finished linking, some time after they were made or changed: whoever was at it
-- has gone. Settling them is subscription_settle's work.
create or replace function rouse.subscription_unsettled(p_age_ms bigint, p_limit integer)
returns table (service_id integer, id text)
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
    select s.service_id, s.id from subscriptions s
     where s.settled < s.changes and s.changed_at <= clock_timestamp() - p_age_ms * interval '1 ms'
     order by s.consumer_id limit p_limit
$$;
comment on function rouse.subscription_unsettled(bigint, integer) is 'Subscriptions that nobody has finished settling.';
