-- compat: safe
-- Epochs rise also over a failover to a standby that had not got the last commits, and over a restore: what was granted
-- there is not known here, so the next epochs leave it room.

create table rouse.epoch_floors (
    n        integer primary key,
    timeline integer not null,
    floor    bigint not null,
    reason   text not null,
    at       timestamptz not null default clock_timestamp()
);
comment on table rouse.epoch_floors is 'From which epoch on wakes are made, the newest last: one row for each timeline of the database''s log that was seen, and each restore by hand.';
comment on column rouse.epoch_floors.timeline is 'The timeline of the server''s write-ahead log. Each promotion and each restore to a point in time begins a new one.';
insert into rouse.epoch_floors (n, timeline, floor, reason)
values (0, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer, 0, 'installed');
