-- subscription_target: what the transport of a subscription is handed, its type
-- included; null for a webhook, for pull-wake, and when there is none.
create or replace function rouse.subscription_target(p_consumer bigint) returns jsonb
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
    select s.target from subscriptions s where s.consumer_id = p_consumer
$$;
comment on function rouse.subscription_target(bigint) is 'What the transport of a subscription is handed.';
