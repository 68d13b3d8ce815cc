-- _dispatch_route, dispatch_route: what the wake router calls once for
-- everything one batch of the log touched: (stream, position) pairs of appends
-- that are actionable or to a stream that subscriptions watch. An idle consumer
-- with pending work gets its next wake; while a wake or a claim is open only the
-- pending offsets move (RFC "coalesce duplicate wake"). Nothing is waited for but
-- wake streams.
-- Outcomes: minted, coalesced, idle (nothing pending, stopped, paused, or
-- nobody's), no_target, retry (a consumer is locked by somebody else, or the
-- append is not visible to this snapshot yet: call again shortly). Of several
-- consumers the first in the order retry, minted, coalesced, idle speaks. p_now
-- is the chosen time of a test; null reads the clock after the locks.
create or replace function rouse._dispatch_route(p_streams bigint[], p_positions bigint[], p_now timestamptz)
returns table (stream_id bigint, outcome text)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_locked   bigint[];   -- an element a pair: its consumer, null when there is none or somebody else has locked it
    v_outcomes text[];
    v_idle     bigint[];   -- consumers to be woken
    v_untold   bigint[];   -- those without a target
    v_woken    bigint[];
    v_pushed   uuid[];     -- open wakes of push transports
    v_wakes    uuid[];
    v_watched  bigint[];   -- streams that subscriptions watch
    v_links    jsonb;      -- what became of their subscriptions, by stream
    v_now      timestamptz;
begin
    select array_agg(l.id order by i.ord) into v_locked
      from unnest(p_streams) with ordinality i (id, ord)
      left join lateral (select * from streams s where s.id = i.id limit 1) s on true
      left join lateral (select c.id from consumers c where c.id = s.consumer_id for update skip locked) l on true;
    v_now := coalesce(p_now, clock_timestamp());

    with at as materialized (
        select i.id, i.ord, c.id as consumer_id, c.service_id, c.entity_url, s.path, s.tail, cs.acked, s.watched & 1 = 1 and s.tail >= i.position as watched,
               case when c.state = 'waking' and c.runner_id is null and c.pool_id is null then c.wake_id end as pushed,
               -- A stream created a moment ago may not be visible yet.
               case when s.id is null or s.consumer_id is not null and c.id is null then 'retry'
                    when s.tail < i.position then 'retry'
                    when s.consumer_id is null then 'idle'
                    when s.actionable <= cs.acked or c.state = 'stopped' or c.paused or s.path is null then 'idle'
                    when c.state = 'idle' then 'mint'
                    else 'coalesced' end as outcome
          from unnest(p_streams, p_positions, v_locked) with ordinality i (id, position, locked, ord)
          left join lateral (select * from streams s where s.id = i.id limit 1) s on true
          left join lateral (select * from consumers c where c.id = i.locked limit 1) c on true
          left join lateral (select * from consumer_streams cs where cs.consumer_id = c.id and cs.stream_id = s.id limit 1) cs on true
    ), moved as (
        update entity_dispatch_state d
           set pending_source_streams = jsonb_build_array(jsonb_build_object('path', '/' || a.path, 'offset', _offset(a.tail),
                                                                           'ackedOffset', _offset(a.acked))),
               pending_reason = 'message_received', pending_since = coalesce(d.pending_since, v_now), updated_at = v_now
          from at a
         where a.outcome = 'coalesced' and d.entity_url = any (array[a.entity_url]) and d.service_id = a.service_id
    )
    select array_agg(a.outcome order by a.ord), array_agg(distinct a.consumer_id) filter (where a.outcome = 'mint'),
           array_agg(a.pushed) filter (where a.outcome = 'coalesced' and a.pushed is not null),
           array_agg(distinct a.id) filter (where a.watched)
      into v_outcomes, v_idle, v_pushed, v_watched
      from at a;

    if v_watched is not null then
        select l.outcomes, v_idle || l.idle, v_pushed || l.pushed into v_links, v_idle, v_pushed from _dispatch_links(v_watched) l;
        v_now := coalesce(p_now, clock_timestamp());
    end if;

    if v_pushed is not null then
        -- A receiver that refused the wake for good is asked once more for each new message: the refusal may have been
        -- mended.
        with again as (
            update wake_notifications n set delivery_status = 'queued', next_attempt_at = v_now
             where n.wake_id = any (v_pushed) and n.delivery_status = 'failed'
            returning n.wake_id
        )
        select array_agg(g.wake_id) into v_wakes from again g;
    end if;
    if v_idle is not null then
        select array_agg(w.consumer_id), v_wakes || array_agg(w.wake_id) into v_woken, v_wakes
          from _wake_mint(v_idle, array_fill('message_received'::text, array[cardinality(v_idle)]), v_now) w;
        if cardinality(v_woken) is distinct from cardinality(v_idle) then
            v_untold := array(select unnest(v_idle) except select unnest(v_woken));
            -- A policy that is replaced mints by itself: the scan need not come back for these. What is parked keeps its
            -- flag for when it is redriven.
            v_untold := array(select c.id from consumers c where c.id = any (v_untold) and not c.paused);
            update streams s set pending = false
              from unnest(p_streams, v_locked) i (id, consumer)
             cross join lateral (select from streams t where t.id = i.id and t.pending for no key update skip locked) t
             where i.consumer = any (v_untold) and s.id = any (array[i.id]);
        end if;
    end if;
    if v_wakes is not null then
        perform _wake_publish(v_wakes, v_now);
    end if;
    -- The first pair of a woken consumer minted its wake, the others found it.
    return query
    select i.id, case when v_links is null or not v_links ? i.id::text or i.own = 'retry' then i.own
                      when v_links ->> i.id::text = 'retry' or i.own in ('idle', 'no_target') then v_links ->> i.id::text
                      when v_links ->> i.id::text = 'minted' then 'minted'
                      else i.own end
      from (select i.id, i.ord, case when i.outcome <> 'mint' then i.outcome
                              when i.consumer = any (v_idle) and not coalesce(i.consumer = any (v_woken), false) then 'no_target'
                              when row_number() over (partition by i.consumer, i.outcome order by i.ord) = 1 then 'minted'
                              else 'coalesced' end as own
              from unnest(p_streams, v_outcomes, v_locked) with ordinality i (id, outcome, consumer, ord)) i
     order by i.ord;
end
$$;
comment on function rouse._dispatch_route(bigint[], bigint[], timestamptz) is 'dispatch_route at a chosen time, for tests.';

create or replace function rouse.dispatch_route(p_streams bigint[], p_positions bigint[])
returns table (stream_id bigint, outcome text)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _dispatch_route(p_streams, p_positions, null);
end
$$;
comment on function rouse.dispatch_route(bigint[], bigint[]) is 'Wakes the owners of streams that got actionable appends.';
