-- _subscription_unlink: takes streams from a consumer's cursors, under their row
-- locks. A stream that nobody else watches is no longer marked as watched.
-- Nothing is waited for: answers how many streams it has unlinked, those that
-- somebody else has locked are not among them.
create or replace function rouse._subscription_unlink(p_consumer_id bigint, p_streams bigint[]) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_got bigint[];
begin
    select array_agg(l.id) into v_got
      from unnest(p_streams) x cross join lateral (select s.id from streams s where s.id = x for no key update skip locked) l;
    delete from consumer_streams cs where cs.consumer_id = p_consumer_id and cs.stream_id = any (v_got);
    update streams s set watched = s.watched & ~1
     where s.id = any (v_got) and s.watched & 1 = 1
       and not exists (select from consumer_streams cs where cs.stream_id = s.id and cs.link_type <> 'own');
    return coalesce(cardinality(v_got), 0);
end
$$;
comment on function rouse._subscription_unlink(bigint, bigint[]) is 'Unlinks streams from a consumer.';
