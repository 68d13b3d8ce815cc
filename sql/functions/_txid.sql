-- _txid: the 32-bit id of the caller's transaction as a client awaits it in a
-- change feed (headers.txids). Wraps around as xids do.
create or replace function rouse._txid() returns bigint
language sql volatile
set search_path = rouse, pg_temp
as $$
    select (pg_current_xact_id()::text)::bigint & 4294967295
$$;
comment on function rouse._txid() is 'The 32-bit transaction id that a change feed reports.';
