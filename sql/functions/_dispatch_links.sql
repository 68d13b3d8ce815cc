-- _dispatch_links: dispatch_route's look at the subscriptions that watch these
-- streams. Locks those with something unread, without waiting, and says which
-- of them are to be woken (idle), which have an open wake of a push transport
-- (pushed), and, by stream, what becomes of it: minted, coalesced, idle, or
-- retry where a subscription is locked by somebody else, who may not have seen
-- the append.
-- Of very many, one call wakes some hundred idle ones and answers retry for the
-- rest, so that other streams have their turn. Those that have been told already
-- are then left alone: they look for what is unread when they end, and the scan
-- sees to what slips through at that moment.
create or replace function rouse._dispatch_links(p_streams bigint[], out outcomes jsonb, out idle bigint[], out pushed uuid[])
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_streams   bigint[];
    v_consumers bigint[];
    v_locked    bigint[];
    v_more      boolean := false;
    c_many      constant integer := 500;
begin
    select array_agg(x.stream_id), array_agg(x.consumer_id) into v_streams, v_consumers
      from unnest(p_streams) i (id)
     cross join lateral (select s.id as stream_id, cs.consumer_id
                           from streams s join consumer_streams cs on cs.stream_id = any (array[s.id])
                          where s.id = i.id and s.path is not null and cs.behind and cs.link_type <> 'own' and s.tail > cs.acked) x;
    if cardinality(v_streams) > c_many then
        select array_agg(x.stream_id), array_agg(x.consumer_id), count(*) > c_many into v_streams, v_consumers, v_more
          from (select i.stream_id, i.consumer_id
                  from unnest(v_streams, v_consumers) i (stream_id, consumer_id)
                 cross join lateral (select from consumers c where c.id = i.consumer_id and c.state = 'idle' and not c.paused limit 1) c
                 limit c_many + 1) x;
    end if;
    if v_streams is null then
        return;
    end if;
    select array_agg(l.id) into v_locked
      from (select distinct x from unnest(v_consumers) x) d
     cross join lateral (select c.id from consumers c where c.id = d.x for update skip locked) l;

    -- A statement of its own: it sees what the lock has kept still.
    with at as materialized (
        select i.stream_id, i.consumer_id,
               case when c.state = 'waking' and c.runner_id is null then c.wake_id end as pushed,
               case when c.id is null then 'idle'
                    when not coalesce(c.id = any (v_locked), false) then 'retry'
                    when c.state = 'stopped' or c.paused or cs.acked is null or s.tail <= cs.acked then 'idle'
                    when c.state = 'idle' then 'minted'
                    else 'coalesced' end as outcome
          from unnest(v_streams, v_consumers) i (stream_id, consumer_id)
          left join lateral (select s.id, s.tail from streams s where s.id = i.stream_id limit 1) s on true
          left join lateral (select c.* from consumers c where c.id = i.consumer_id limit 1) c on true
          left join lateral (select cs.acked from consumer_streams cs where cs.consumer_id = i.consumer_id and cs.stream_id = i.stream_id limit 1) cs on true
    )
    select (select jsonb_object_agg(o.stream_id::text, o.outcome)
              from (select a.stream_id, case when v_more or bool_or(a.outcome = 'retry') then 'retry' when bool_or(a.outcome = 'minted') then 'minted'
                                             when bool_or(a.outcome = 'coalesced') then 'coalesced' else 'idle' end as outcome
                      from at a group by a.stream_id) o),
           (select array_agg(distinct a.consumer_id) from at a where a.outcome = 'minted'),
           (select array_agg(distinct a.pushed) from at a where a.outcome = 'coalesced' and a.pushed is not null)
      into outcomes, idle, pushed;
end
$$;
comment on function rouse._dispatch_links(bigint[]) is 'The subscriptions to be woken for streams that they watch.';
