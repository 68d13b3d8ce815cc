-- _subscription_link: links existing streams to a subscription at their tails,
-- under their row locks. A link that is there stays as it is, but becomes
-- explicit when asked to. Passes over streams that have gone, are not for
-- subscriptions, or are guarded and not their owner's. Nothing is waited for:
-- streams that somebody else has locked are answered, to be tried again.
create or replace function rouse._subscription_link(p_sub rouse.subscriptions, p_streams bigint[], p_link_type text) returns bigint[]
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_got bigint[];
    v_ids bigint[];
begin
    select array_agg(l.id) into v_got
      from unnest(p_streams) x cross join lateral (select s.id from streams s where s.id = x for no key update skip locked) l;
    -- The locks are held: these are the tails the streams keep until we commit.
    with l as materialized (
        select s.id, s.tail from streams s
         where s.id = any (v_got) and s.path is not null and s.deleted_at is null
           and (s.kind = 'app' or s.kind = 'entity' and (p_sub.system or s.owner = p_sub.owner))
    ), linked as (
        insert into consumer_streams as cs (consumer_id, stream_id, link_type, acked)
        select p_sub.consumer_id, l.id, p_link_type, l.tail from l
        on conflict on constraint consumer_streams_pkey
        do update set link_type = 'explicit' where p_link_type = 'explicit' and cs.link_type <> 'explicit'
    )
    select array_agg(l.id) into v_ids from l;
    update streams s set watched = s.watched | 1 where s.id = any (v_ids) and s.watched & 1 = 0;
    if cardinality(v_got) = cardinality(p_streams) then
        return '{}';
    end if;
    return array(select s.id from streams s where s.id = any (p_streams) and s.id <> all (coalesce(v_got, '{}')) and s.path is not null);
end
$$;
comment on function rouse._subscription_link(rouse.subscriptions, bigint[], text) is 'Links existing streams to a subscription at their tails.';
