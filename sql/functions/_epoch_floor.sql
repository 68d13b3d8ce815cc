-- _epoch_floor: no wake is made with an epoch below it, none that has one is
-- granted, and a claim that has one is over: its lease counts as ended. It rises
-- when the server goes on on another timeline of its log: it was promoted, or
-- restored to a point in time. What the old primary has answered may be missing
-- here: the wake may have been granted, and what a holder has read, and acks,
-- may have been at offsets that other messages have now. p_timeline is the chosen one of
-- a test; null asks the server.
create or replace function rouse._epoch_floor(p_timeline integer default null) returns bigint
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_timeline integer := coalesce(p_timeline, ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer);
    v_last     epoch_floors;
begin
    select * into v_last from epoch_floors order by n desc limit 1;
    if v_last.timeline is distinct from v_timeline then
        return _epochs_raise('timeline', v_timeline, false);
    end if;
    return v_last.floor;
end
$$;
comment on function rouse._epoch_floor(integer) is 'The lowest epoch that a wake may have that is made or granted now.';
