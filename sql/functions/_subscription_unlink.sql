-- _subscription_unlink: takes streams from a consumer's cursors, under their row
-- locks, taken in id order. A stream that nobody else watches is no longer
-- marked as watched.
create or replace function rouse._subscription_unlink(p_consumer_id bigint, p_streams bigint[]) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    perform 1 from streams s where s.id = any (p_streams) order by s.id for no key update;
    delete from consumer_streams cs where cs.consumer_id = p_consumer_id and cs.stream_id = any (p_streams);
    update streams s set watched = s.watched & ~1
     where s.id = any (p_streams) and s.watched & 1 = 1
       and not exists (select from consumer_streams cs where cs.stream_id = s.id and cs.link_type <> 'own');
end
$$;
comment on function rouse._subscription_unlink(bigint, bigint[]) is 'Unlinks streams from a consumer.';
