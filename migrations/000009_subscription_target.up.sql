-- compat: safe
-- Subscriptions may have targets of any transport, not only of the two that the protocol names.

alter table rouse.subscriptions add column target jsonb;
comment on column rouse.subscriptions.target is 'Of a subscription whose type is neither webhook nor pull-wake: what the transport of that type is handed, its type included.';

alter table rouse.subscriptions
    drop constraint subscriptions_type_check,
    drop constraint subscriptions_target_check,
    add constraint subscriptions_type_check check (type <> '' and (type in ('webhook', 'pull-wake')) = (target is null)),
    add constraint subscriptions_target_check check (case type when 'webhook' then webhook_url is not null when 'pull-wake' then wake_stream is not null else coalesce(target ->> 'type' = type, false) end);
