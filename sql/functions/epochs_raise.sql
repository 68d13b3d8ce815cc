-- epochs_raise: the next epoch of every consumer is at least a million above the
-- highest that is known of any (_epochs_raise). No wake that is out now can be
-- claimed any more, it is replaced when somebody tries, and no lease counts that
-- is held. For the operator of a database that was set back in a way that
-- Postgres itself does not know of, a disk's snapshot or a dump, before the
-- gateways start; a promotion and a restore to a point in time are noticed
-- (_epoch_floor). Reads all consumers once. Returns the new floor.
create or replace function rouse.epochs_raise(p_reason text) returns bigint
language sql
set search_path = rouse, pg_temp
as $$
    select _epochs_raise(p_reason, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer, true)
$$;
comment on function rouse.epochs_raise(text) is 'Sets the floor of epochs above all that are known. To be called after a restore that Postgres does not know of.';
