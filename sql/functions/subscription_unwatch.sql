-- subscription_unwatch: a subscription no longer names a stream, on behalf of
-- p_principal. Where its pattern finds it too, the link stays, with its cursor.
-- Outcomes: ok (also when it was not named), not_found.
create or replace function rouse.subscription_unwatch(p_service integer, p_id text, p_principal text, p_path text) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_stream bigint;
    s        subscriptions;
begin
    select * into s from subscriptions x where x.id = p_id and x.service_id = p_service for no key update;
    if not found then
        return 'not_found';
    end if;
    delete from subscription_paths p where p.path = p_path and p.service_id = p_service and p.consumer_id = s.consumer_id;
    select t.id into v_stream from streams t where t.path = p_path and t.service_id = p_service for no key update;
    if exists (select from consumer_streams cs where cs.consumer_id = s.consumer_id and cs.stream_id = v_stream and cs.link_type = 'explicit') then
        if p_path ~ (select g.regex from _glob_parse(s.pattern) g) and _glob_sees(p_path)
           and not exists (select from subscriptions w where w.wake_stream = p_path and w.service_id = p_service) then
            update consumer_streams cs set link_type = 'glob' where cs.consumer_id = s.consumer_id and cs.stream_id = v_stream;
        else
            perform _subscription_unlink(s.consumer_id, array[v_stream]);
        end if;
    end if;
    perform audit_add(p_service, p_principal, 'subscription.unwatch', '/__ds/subscriptions/' || p_id, jsonb_build_object('stream', p_path));
    return 'ok';
end
$$;
comment on function rouse.subscription_unwatch(integer, text, text, text) is 'A subscription no longer names a stream.';
