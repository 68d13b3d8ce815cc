-- subscription_put: subscription_register for the types that the protocol names,
-- as releases before it call it.
create or replace function rouse.subscription_put(
    p_service integer, p_id text, p_type text, p_pattern text, p_streams text[], p_wake_stream text, p_webhook_url text,
    p_description text, p_lease_ms integer, p_mount text, p_owner text, p_system boolean
) returns text
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
    select subscription_register(p_service, p_id, p_type, p_pattern, p_streams, p_wake_stream, p_webhook_url, null,
                                 p_description, p_lease_ms, p_mount, p_owner, p_system)
$$;
comment on function rouse.subscription_put(integer, text, text, text, text[], text, text, text, integer, text, text, boolean)
    is 'Registers or confirms a subscription of one of the protocol''s types.';
