-- subscription_settle: links the streams that existed when a subscription was
-- made, or was given more streams, one bounded step a call. The caller begins
-- with nulls, hands back what it was answered, and stops at done:
--   waiting  call again in a moment: streams are being made by transactions that
--            may not have seen the subscription; once they have ended their
--            streams are visible. Or a stream is locked by somebody else
--   more     call again
--   done     everything that existed at the first call is linked
--   not_found
-- p_change is the change the caller waits for; p_creators are the transactions
-- still waited for, empty once all have ended. Whoever begins to make a stream
-- later finds the subscription by itself (_subscription_discover), and where
-- both find the stream, the first link stays. Any number of callers may be at
-- it at once, and anybody may end what another one has begun.
create or replace function rouse.subscription_settle(
    p_service integer, p_id text, p_change integer, p_creators text[], p_limit integer,
    out outcome text, out change integer, out creators text[]
)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    s        subscriptions;
    g        record;
    v_ids    bigint[];
    v_paths  text[];
    v_missed bigint[];    -- locked by somebody else
    v_last   text;
    v_n      integer;
    v_end    text;
begin
    select * into s from subscriptions x where x.id = p_id and x.service_id = p_service;
    change := coalesce(p_change, s.changes);
    creators := p_creators;
    if s.consumer_id is null then
        outcome := 'not_found';
        return;
    elsif s.settled >= change then
        outcome := 'done';
        return;
    end if;
    if creators is null or creators <> '{}' then
        -- A lock is released after its transaction has become visible.
        select coalesce(array_agg(l.virtualtransaction), '{}') into creators
          from pg_locks l
         where l.locktype = 'advisory' and l.classid = _subscription_lock() and l.objid = p_service and l.objsubid = 2
           and l.database = (select d.oid from pg_database d where d.datname = current_database())
           and (p_creators is null or l.virtualtransaction = any (p_creators));
        if creators <> '{}' then
            outcome := 'waiting';
            return;
        end if;
    end if;

    select * into s from subscriptions x where x.consumer_id = s.consumer_id for no key update;
    if not found then
        outcome := 'not_found';
        return;
    end if;
    if not s.scan_done then
        select * into g from _glob_parse(s.pattern);
        -- Every path that begins with the literal beginning lies between it and the same with the character behind the
        -- slash; everything lies before as many of the last character as no path holds.
        v_end := case when g.prefix = '' then repeat(chr(1114111), 300) else g.prefix || '0' end;
        select array_agg(x.id) filter (where x.fits), array_agg(x.path) filter (where x.fits), max(x.path), count(*)
          into v_ids, v_paths, v_last, v_n
          from (select x.id, x.path, x.kind in ('app', 'entity') and left(x.path, 1) <> '_' and x.path ~ g.regex and _glob_sees(x.path)
                       and not exists (select from subscriptions w where w.wake_stream = x.path and w.service_id = p_service) as fits from (
                select t.id, t.path, t.kind from streams t
                 where t.path >= coalesce(s.scanned, g.prefix) and t.path < v_end and t.service_id = p_service and t.path is distinct from s.scanned
                 order by t.path limit p_limit) x) x;
        v_missed := _subscription_link(s, v_ids, 'glob');
        if v_missed <> '{}' then
            -- The next step begins at the first of them.
            select max(f.path) into v_last from unnest(v_paths) f (path)
             where f.path < all (array(select i.path from unnest(v_ids, v_paths) i (id, path) where i.id = any (v_missed)));
        end if;
        update subscriptions x
           set scanned = coalesce(v_last, x.scanned), scan_done = v_n < p_limit and v_missed = '{}'
         where x.consumer_id = s.consumer_id;
        outcome := case when v_missed = '{}' then 'more' else 'waiting' end;
        return;
    end if;
    select array_agg(t.id) into v_ids
      from subscription_paths p
      join streams t on t.path = any (array[p.path]) and t.service_id = p.service_id
     where p.consumer_id = s.consumer_id
       and not exists (select from consumer_streams cs where cs.consumer_id = p.consumer_id and cs.stream_id = t.id and cs.link_type = 'explicit');
    if _subscription_link(s, v_ids, 'explicit') <> '{}' then
        outcome := 'waiting';
        return;
    end if;
    update subscriptions x set settled = greatest(x.settled, change) where x.consumer_id = s.consumer_id;
    outcome := 'done';
end
$$;
comment on function rouse.subscription_settle(integer, text, integer, text[], integer) is 'Links the streams that existed when a subscription was made.';
