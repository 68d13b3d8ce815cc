-- compat: safe
-- Durable subscriptions: consumers that watch streams they do not own, by name and by pattern. Their
-- claims, wakes and cursors are the mutex's own tables.

create table rouse.subscriptions (
    consumer_id  bigint not null,
    service_id   integer not null,
    id           text collate "C" not null,
    type         text not null,
    pattern      text collate "C",
    wake_stream  text collate "C",
    webhook_url  text,
    description  text,
    config_hash  text not null,
    mount        text not null default '',
    owner        text not null,
    system       boolean not null,
    status       text not null default 'active',
    last_error   text,
    changes      integer not null default 1,
    settled      integer not null default 0,
    scanned      text collate "C",
    scan_done    boolean not null default false,
    changed_at   timestamptz not null,
    created_at   timestamptz not null,
    constraint subscriptions_pkey primary key (consumer_id),
    constraint subscriptions_id_service_id_key unique (id, service_id),
    constraint subscriptions_type_check check (type in ('webhook', 'pull-wake')),
    constraint subscriptions_status_check check (status in ('active', 'failed')),
    constraint subscriptions_target_check check (case type when 'webhook' then webhook_url else wake_stream end is not null)
) with (fillfactor = 70);
create index subscriptions_wake_stream_idx on rouse.subscriptions (wake_stream, service_id) where wake_stream is not null;
create index subscriptions_unsettled_idx on rouse.subscriptions (consumer_id) where settled < changes;
comment on table rouse.subscriptions is 'A consumer of streams it does not own (Durable Streams __ds). Its mutex is the consumers row of the same id, its cursors are links in consumer_streams.';
comment on column rouse.subscriptions.mount is 'Path prefix of the mount it was made through: the URLs it is told are below it.';
comment on column rouse.subscriptions.owner is 'Principal that registered it; with system false it is linked to that principal''s guarded streams only.';
comment on column rouse.subscriptions.status is 'failed while the receiver''s last answer was a refusal.';
comment on column rouse.subscriptions.changes is 'Counts changes of what it watches; settled says up to which of them the streams that existed are linked.';
comment on column rouse.subscriptions.scanned is 'Path up to which the streams that existed have been looked at for the pattern.';

create table rouse.subscription_globs (
    consumer_id  bigint not null,
    service_id   integer not null,
    pattern      text collate "C" not null,
    owner        text not null,
    system       boolean not null,
    constraint subscription_globs_pkey primary key (consumer_id)
);
create index subscription_globs_pattern_idx on rouse.subscription_globs (pattern, service_id);
comment on table rouse.subscription_globs is 'The patterns. Sorted, they are a tree of segments, which a new stream''s path is walked down (_glob_find).';
comment on column rouse.subscription_globs.pattern is 'As _glob_parse writes it: a literal segment that is made of asterisks has a control character before it.';

create table rouse.subscription_paths (
    path         text collate "C" not null,
    service_id   integer not null,
    consumer_id  bigint not null,
    constraint subscription_paths_pkey primary key (path, service_id, consumer_id)
);
create index subscription_paths_consumer_id_idx on rouse.subscription_paths (consumer_id, path);
comment on table rouse.subscription_paths is 'Streams a subscription names. A stream that does not exist is linked when it is made.';

alter table rouse.consumers add column turn bigint;
comment on column rouse.consumers.turn is 'Of a subscription: the stream the last wake was for. The next begins behind it, so that a busy stream starves no other.';

create table rouse.subscription_removals (
    consumer_id  bigint not null,
    constraint subscription_removals_pkey primary key (consumer_id)
);
comment on table rouse.subscription_removals is 'Deleted subscriptions whose links are still being removed.';

-- A new stream links to a subscription without locking the mutex: creators of streams and holders of
-- claims would wait for each other. A link whose consumer is gone is passed over.
alter table rouse.consumer_streams drop constraint consumer_streams_consumer_id_fkey;

drop index rouse.consumer_streams_behind_idx;
-- On an expression, so that a look for unread links cannot be planned as a walk over the primary key.
create index consumer_streams_behind_idx on rouse.consumer_streams ((case when behind then consumer_id end), stream_id) where behind;
