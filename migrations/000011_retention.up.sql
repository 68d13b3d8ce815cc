-- compat: safe
-- Retention: how long a stream's messages, and the rows that tell of what is over, are kept. A trim moves a
-- stream's head at once; the rows below it go later, in small batches that lock nobody's stream.

create table rouse.stream_retention (
    stream_id    bigint not null references rouse.streams on delete cascade,
    own          boolean not null default false,
    entity_type  text collate "C",
    max_age_ms   bigint,
    max_bytes    bigint,
    max_count    bigint,
    counted_to   bigint not null default 0,
    counted      bigint not null default 0,
    updated_at   timestamptz not null default clock_timestamp(),
    constraint stream_retention_pkey primary key (stream_id),
    constraint stream_retention_limits_check check (max_age_ms > 0 and max_bytes > 0 and max_count > 0)
) with (fillfactor = 70);
comment on table rouse.stream_retention is 'Streams whose messages are not kept for ever. Without own, the limits of the entity''s type hold.';
comment on column rouse.stream_retention.own is 'The limits are this stream''s, not its entity type''s; all null then keeps everything.';
comment on column rouse.stream_retention.counted is 'With a limit by count: messages above the head and up to counted_to.';

create table rouse.type_retention (
    service_id   integer not null,
    entity_type  text collate "C" not null,
    max_age_ms   bigint,
    max_bytes    bigint,
    max_count    bigint,
    walked       bigint not null default 0,
    updated_at   timestamptz not null default clock_timestamp(),
    constraint type_retention_pkey primary key (entity_type, service_id),
    constraint type_retention_limits_check check (max_age_ms > 0 and max_bytes > 0 and max_count > 0)
);
comment on table rouse.type_retention is 'Limits of the main streams of a type''s entities.';
comment on column rouse.type_retention.walked is 'Stream up to which the entities of the type have their row in stream_retention.';

create table rouse.stream_marks (
    stream_id    bigint not null references rouse.streams on delete cascade,
    at           timestamptz not null,
    tail         bigint not null,
    constraint stream_marks_pkey primary key (stream_id, at)
) with (autovacuum_vacuum_scale_factor = 0.05);
comment on table rouse.stream_marks is 'Where a stream''s tail was at a time. Messages carry no time; everything up to a mark is at least as old as the mark.';

create table rouse.stream_trims (
    stream_id    bigint not null references rouse.streams on delete cascade,
    swept        bigint not null,
    due_at       timestamptz not null,
    constraint stream_trims_pkey primary key (stream_id)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index stream_trims_due_at_idx on rouse.stream_trims (due_at);
comment on table rouse.stream_trims is 'Streams with messages below their head that are still to be deleted. A stream whose forks read them is looked at again now and then.';
comment on column rouse.stream_trims.swept is 'Everything up to here is deleted.';

create table rouse.producer_marks (
    stream_id    bigint not null references rouse.streams on delete cascade,
    at           timestamptz not null,
    tail         bigint not null,
    constraint producer_marks_pkey primary key (stream_id)
);
comment on table rouse.producer_marks is 'Since when a stream with producers has had this tail, to tell which are idle.';

create table rouse.retention_walks (
    name         text collate "C" not null,
    cursor       text collate "C",
    started_at   timestamptz,
    finished_at  timestamptz,
    constraint retention_walks_pkey primary key (name)
);
comment on table rouse.retention_walks is 'How far each walk over a table has come. Whoever has locked the row goes on with it; all gateways share them.';
insert into rouse.retention_walks (name) values ('wake_streams'), ('pool_streams'), ('streams'), ('claims'), ('wakes'), ('producers');

-- Tables whose rows go in bulk: the vacuum that follows is to keep up with the deletes and to find work early.
alter table rouse.messages set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 2000,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_cost_limit = 2000);
alter table rouse.wake_notifications set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
alter table rouse.consumer_claims set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
alter table rouse.delivery_attempts set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
alter table rouse.audit_log set (autovacuum_vacuum_scale_factor = 0.05);
alter table rouse.producers set (autovacuum_vacuum_scale_factor = 0.05);
