-- _subscription_link: links existing streams to a subscription at their tails,
-- under their row locks, taken in id order. A link that is there stays as it
-- is, but becomes explicit when asked to. Passes over streams that have gone,
-- are not for subscriptions, or are guarded and not their owner's.
create or replace function rouse._subscription_link(p_sub rouse.subscriptions, p_streams bigint[], p_link_type text) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_ids bigint[];
begin
    perform 1 from streams s where s.id = any (p_streams) order by s.id for no key update;
    -- The locks are held: these are the tails the streams keep until we commit.
    with l as materialized (
        select s.id, s.tail from streams s
         where s.id = any (p_streams) and s.path is not null and s.deleted_at is null
           and (s.kind = 'app' or s.kind = 'entity' and (p_sub.system or s.owner = p_sub.owner))
    ), linked as (
        insert into consumer_streams as cs (consumer_id, stream_id, link_type, acked)
        select p_sub.consumer_id, l.id, p_link_type, l.tail from l
        on conflict on constraint consumer_streams_pkey
        do update set link_type = 'explicit' where p_link_type = 'explicit' and cs.link_type <> 'explicit'
    )
    select array_agg(l.id) into v_ids from l;
    update streams s set watched = s.watched | 1 where s.id = any (v_ids) and s.watched & 1 = 0;
end
$$;
comment on function rouse._subscription_link(rouse.subscriptions, bigint[], text) is 'Links existing streams to a subscription at their tails.';
