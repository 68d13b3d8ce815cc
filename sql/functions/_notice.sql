-- _notice: tells the log feed that a stream changed. The message is part of
-- the caller's transaction: it is seen if and only if the change commits.
-- Flags: 1 an actionable append, 2 closed, 4 gone, 8 created, 16 an append that
-- subscriptions watch, 32 one (or an end) that observers watch.
create or replace function rouse._notice(p_stream_id bigint, p_tail bigint, p_flags integer) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    perform pg_logical_emit_message(true, 'rouse', p_stream_id || ':' || p_tail || ':' || p_flags);
end
$$;
comment on function rouse._notice(bigint, bigint, integer) is 'Emits one transactional notice for the log feed.';
