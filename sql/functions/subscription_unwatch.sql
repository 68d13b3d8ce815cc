-- subscription_unwatch: subscription_stream_remove on behalf of a principal,
-- whose change is noted.
create or replace function rouse.subscription_unwatch(p_service integer, p_id text, p_principal text, p_path text) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_outcome text := subscription_stream_remove(p_service, p_id, p_path);
begin
    if v_outcome = 'ok' then
        perform audit_add(p_service, p_principal, 'subscription.unwatch', '/__ds/subscriptions/' || p_id, jsonb_build_object('stream', p_path));
    end if;
    return v_outcome;
end
$$;
comment on function rouse.subscription_unwatch(integer, text, text, text) is 'Takes a stream''s name back from a subscription, with an audit row.';
