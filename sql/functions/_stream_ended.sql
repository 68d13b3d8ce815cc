-- _stream_ended: marks the observers of streams that the caller has just closed
-- without an append, under their row locks: the end is told, too. Subscriptions
-- have nothing to read, and a link that is marked for nothing stays so.
create or replace function rouse._stream_ended(p_streams bigint[]) returns void
language sql
set search_path = rouse, pg_temp
as $$
    update observers o set behind = true where o.stream_id = any (p_streams) and not o.behind
$$;
comment on function rouse._stream_ended(bigint[]) is 'Marks the observers of streams that were closed.';
