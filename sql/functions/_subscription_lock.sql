-- _subscription_lock: class of the advisory locks that creators of streams hold
-- while they look for subscriptions; the other half of the key is the service.
create or replace function rouse._subscription_lock() returns integer
language sql immutable parallel safe
as $$
    select 1920169075
$$;
comment on function rouse._subscription_lock() is 'Class of the advisory locks of stream creation.';
