-- _stream_watched: marks the cursors of streams that the caller has just
-- appended to, under their row locks, in its own transaction: subscriptions'
-- links and observers. Whoever clears a mark does so under the stream's row
-- lock too, so a mark cannot be lost between the two.
create or replace function rouse._stream_watched(p_streams bigint[]) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    update consumer_streams cs set behind = true
     where cs.stream_id = any (p_streams) and not cs.behind and cs.link_type <> 'own';
    update observers o set behind = true
     where o.stream_id = any (p_streams) and not o.behind;
end
$$;
comment on function rouse._stream_watched(bigint[]) is 'Marks the cursors of watched streams that got an append.';
