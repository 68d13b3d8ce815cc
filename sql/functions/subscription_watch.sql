-- subscription_watch: subscription_stream_add on behalf of a principal, whose
-- change is noted.
create or replace function rouse.subscription_watch(p_service integer, p_id text, p_principal text, p_streams text[]) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_outcome text := subscription_stream_add(p_service, p_id, p_streams);
begin
    if v_outcome = 'ok' then
        perform audit_add(p_service, p_principal, 'subscription.watch', '/__ds/subscriptions/' || p_id, jsonb_build_object('streams', p_streams));
    end if;
    return v_outcome;
end
$$;
comment on function rouse.subscription_watch(integer, text, text, text[]) is 'Names more streams of a subscription, with an audit row.';
