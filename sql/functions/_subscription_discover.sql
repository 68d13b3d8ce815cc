-- _subscription_discover: links a stream, in the transaction that makes it, to
-- the subscriptions that name it or whose pattern matches, at its beginning: what
-- it is made with is new to them (a fork of a trimmed stream begins where that
-- does). A wake stream is for those who name it only:
-- subscriptions to everything would wake each other for ever. Returns whether it
-- has done so.
-- The shared lock says that somebody is at it: subscription_settle waits for
-- those who may have looked before its subscription was there. Nobody ever
-- takes the lock otherwise, so it is never waited for here.
create or replace function rouse._subscription_discover(
    p_service integer, p_stream_id bigint, p_path text, p_kind text, p_owner text, p_tail bigint
) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    if p_kind not in ('app', 'entity') or left(p_path, 1) = '_' then
        return false;
    end if;
    perform pg_advisory_xact_lock_shared(_subscription_lock(), p_service);
    insert into consumer_streams (consumer_id, stream_id, link_type, acked, behind)
    select x.consumer_id, p_stream_id, min(x.link_type), (select s.head from streams s where s.id = p_stream_id),
           p_tail > (select s.head from streams s where s.id = p_stream_id)
      from (select g.consumer_id, 'glob' as link_type from _glob_find(p_service, p_path) g
             where (p_kind = 'app' or g.system or g.owner = p_owner)
               and not exists (select from subscriptions w where w.wake_stream = p_path and w.service_id = p_service)
             union all
            select p.consumer_id, 'explicit' from subscription_paths p
              join subscriptions s on s.consumer_id = any (array[p.consumer_id])
             where p.path = p_path and p.service_id = p_service and (p_kind = 'app' or s.system or s.owner = p_owner)) x
     group by x.consumer_id;
    if not found then
        return false;
    end if;
    update streams s set watched = s.watched | 1 where s.id = p_stream_id;
    return true;
end
$$;
comment on function rouse._subscription_discover(integer, bigint, text, text, text, bigint) is 'Links a new stream to the subscriptions that watch its name.';
