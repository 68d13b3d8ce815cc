-- subscription_settle: links the streams that existed when a subscription was
-- made, or was given more streams, one bounded step a call. The caller begins
-- with nulls, hands back what it was answered, and stops at done:
--   waiting  streams are being made by transactions that may not have seen the
--            subscription; once they have ended their streams are visible
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
as $$
declare
    s     subscriptions;
    g     record;
    v_ids bigint[];
    v_n   integer;
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
        -- Every path that begins with the literal beginning lies between these two.
        select array_agg(x.id) filter (where x.kind in ('app', 'entity') and left(x.path, 1) <> '_' and x.path ~ g.regex), max(x.path), count(*)
          into v_ids, s.scanned, v_n
          from (select t.id, t.path, t.kind from streams t
                 where t.path > coalesce(s.scanned, '') and t.path >= g.prefix
                   and (g.prefix = '' or t.path < (g.prefix || '0') collate "C") and t.service_id = p_service
                 order by t.path limit p_limit) x;
        perform _subscription_link(s, v_ids, 'glob');
        update subscriptions x set scanned = coalesce(s.scanned, x.scanned), scan_done = v_n < p_limit where x.consumer_id = s.consumer_id;
        outcome := 'more';
        return;
    end if;
    select array_agg(t.id) into v_ids
      from subscription_paths p
      join streams t on t.path = any (array[p.path]) and t.service_id = p.service_id
     where p.consumer_id = s.consumer_id
       and not exists (select from consumer_streams cs where cs.consumer_id = p.consumer_id and cs.stream_id = t.id and cs.link_type = 'explicit');
    perform _subscription_link(s, v_ids, 'explicit');
    update subscriptions x set settled = greatest(x.settled, change) where x.consumer_id = s.consumer_id;
    outcome := 'done';
end
$$;
comment on function rouse.subscription_settle(integer, text, integer, text[], integer) is 'Links the streams that existed when a subscription was made.';
