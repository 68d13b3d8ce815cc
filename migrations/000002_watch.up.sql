-- compat: safe
-- Who reads a stream from outside its entity: subscriptions (links of consumers) and observers, each
-- with a cursor of its own. An append finds out for nothing whether anybody watches: the stream's row,
-- which it locks anyway, says so.

alter table rouse.streams add column watched smallint not null default 0;
comment on column rouse.streams.watched is 'Who an append must mark as behind: 1 subscriptions, 2 observers, 3 both. A bit set for nothing costs one probe.';

alter table rouse.consumer_streams
    add column behind boolean not null default false,
    drop constraint consumer_streams_link_type_check,
    alter column link_type set default 'own';
update rouse.consumer_streams cs set link_type = 'own'
  from rouse.consumers c where c.id = cs.consumer_id and c.kind = 'entity';
alter table rouse.consumer_streams
    add constraint consumer_streams_link_type_check check (link_type in ('own', 'explicit', 'glob'));
create index consumer_streams_behind_idx on rouse.consumer_streams (consumer_id) where behind;
comment on column rouse.consumer_streams.link_type is 'own: an entity and its main stream, where actionable appends count. explicit, glob: a subscription and a stream, where every append counts.';
comment on column rouse.consumer_streams.behind is 'Set by every append to a watched stream in its own transaction; cleared only under the stream''s row lock once tail = acked. Never false while work is left; own links do not use it.';

create table rouse.observers (
    id             bigint generated always as identity primary key,
    service_id     integer not null,
    stream_id      bigint not null references rouse.streams on delete cascade,
    kind           text not null,
    subscriber_url text collate "C" not null,
    acked          bigint not null,
    behind         boolean not null default false,
    created_at     timestamptz not null default clock_timestamp(),
    constraint observers_kind_check check (kind in ('wake', 'manifest'))
) with (fillfactor = 70);
create index observers_stream_id_idx on rouse.observers (stream_id);
create index observers_subscriber_url_idx on rouse.observers (subscriber_url, service_id);
create index observers_behind_idx on rouse.observers (id) where behind;
comment on table rouse.observers is 'Cursors of the server itself over a stream, each evaluating what it reads for one entity: wakes it asked for, manifest rows it wrote.';
comment on column rouse.observers.behind is 'As consumer_streams.behind.';
