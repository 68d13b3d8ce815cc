-- subscription_watch: names more streams for a subscription, on behalf of
-- p_principal. The caller goes on with subscription_settle, which links those
-- that exist at their tails. Outcomes: ok, not_found, stream_forbidden,
-- stream_reserved, wake_stream_own, too_many (a subscription names at most
-- 10000).
create or replace function rouse.subscription_watch(p_service integer, p_id text, p_principal text, p_streams text[]) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_refusal text;
    v_new     text[];
    s         subscriptions;
begin
    select * into s from subscriptions x where x.id = p_id and x.service_id = p_service for no key update;
    if not found then
        return 'not_found';
    end if;
    v_refusal := _subscription_refusal(p_service, p_streams, s.wake_stream, s.owner, s.system);
    if v_refusal is not null then
        return v_refusal;
    end if;
    with new as (
        insert into subscription_paths (path, service_id, consumer_id) select distinct x, p_service, s.consumer_id from unnest(p_streams) x
        on conflict on constraint subscription_paths_pkey do nothing
        returning path
    )
    select array_agg(n.path) into v_new from new n;
    if (select count(*) from (select from subscription_paths p where p.consumer_id = s.consumer_id limit 10001) c) > 10000 then
        -- Those that were named before stay.
        delete from subscription_paths p where p.path = any (v_new) and p.service_id = p_service and p.consumer_id = s.consumer_id;
        return 'too_many';
    end if;
    update subscriptions x set changes = x.changes + 1, changed_at = clock_timestamp() where x.consumer_id = s.consumer_id;
    perform audit_add(p_service, p_principal, 'subscription.watch', '/__ds/subscriptions/' || p_id, jsonb_build_object('streams', p_streams));
    return 'ok';
end
$$;
comment on function rouse.subscription_watch(integer, text, text, text[]) is 'Names more streams for a subscription.';
