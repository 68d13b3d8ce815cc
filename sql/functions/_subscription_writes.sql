-- _subscription_writes: whether whoever holds this subscription may append to
-- an entity's main stream: the entity has no dispatch target of its own, so
-- nobody can hold it itself, and of the subscriptions that watch it, those of
-- the server and of the entity's owner, this one was first. So there is one
-- writer at a time, as for any entity.
create or replace function rouse._subscription_writes(p_consumer bigint, p_stream bigint) returns boolean
language sql stable
set search_path = rouse, pg_temp
as $$
    select exists (
        select from streams s
          join entities e on e.url = '/' || left(s.path, -5) and e.service_id = s.service_id
         where s.id = p_stream and s.kind = 'entity' and e.dispatch_policy -> 'targets' -> 0 is null
           and p_consumer = (select min(l.consumer_id) from consumer_streams l join subscriptions b on b.consumer_id = l.consumer_id
                              where l.stream_id = s.id and l.link_type <> 'own' and (b.system or b.owner = s.owner)))
$$;
comment on function rouse._subscription_writes(bigint, bigint) is 'Whether a subscription''s holder may append to an entity''s stream.';
