-- _retention_sweep, retention_sweep: deletes messages below the heads of trimmed
-- streams, at most p_limit appends of one stream, and says how many. What forks
-- still read stays: such a stream is looked at again within the hour. No
-- stream's row is locked, so appends and reads go on beside it. A stream that was
-- deleted is stream_purge's. more says that there is more to do now.
create or replace function rouse._retention_sweep(p_limit integer, p_now timestamptz)
returns table (deleted integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_id    bigint;
    v_from  bigint;  -- everything up to here is gone; a look from below would pass over all that is dead there
    v_head  bigint;
    v_lo    bigint;  -- forks read what lies above v_lo and not above v_hi
    v_hi    bigint;
    v_to    bigint;
    v_swept bigint;
    v_n     integer;
    v_gone  boolean;
    v_far   constant timestamptz := p_now + interval '2 hours';  -- nothing is due so late, unless the clock was set back
begin
    deleted := 0;
    more := false;
    select t.stream_id, t.swept into v_id, v_from from stream_trims t where t.due_at <= p_now order by t.due_at limit 1 for update skip locked;
    if not found then
        select t.stream_id, t.swept into v_id, v_from from stream_trims t where t.due_at > v_far order by t.due_at limit 1 for update skip locked;
    end if;
    if v_id is null then
        return next;
        return;
    end if;
    -- A fork takes the head it finds, under a lock that a trim waits for: whoever reads below this head is seen here.
    select s.head, s.path is null into v_head, v_gone from streams s where s.id = v_id;
    if v_gone then
        delete from stream_trims t where t.stream_id = v_id;
        more := true;
        return next;
        return;
    end if;
    with recursive f as (
        select s.id, s.head, s.fork_at as hi from streams s where s.forked_from = v_id
        union all
        select s.id, s.head, least(s.fork_at, f.hi) from f join streams s on s.forked_from = f.id
    )
    select min(f.head), max(f.hi) into v_lo, v_hi from f where f.hi > f.head;

    for v_round in 1 .. 2 loop
        if v_round = 2 then
            exit when v_hi is null or deleted >= p_limit;
            v_from := v_hi;
        end if;
        select max(y.position) into v_to
          from (select x.position from messages x
                 where x.stream_id = v_id and x.position > v_from
                   and x.position <= case v_round when 1 then least(v_head, v_lo) else v_head end
                 order by x.position limit p_limit - deleted) y;
        continue when v_to is null;
        delete from messages x where x.stream_id = v_id and x.position > v_from and x.position <= v_to;
        get diagnostics v_n = row_count;
        deleted := deleted + v_n;
        if v_round = 1 then
            v_swept := v_to;
        end if;
    end loop;

    -- Once: to change a row again that this transaction has changed already looks for its stream under a lock, and a trim
    -- that has that waits for this row.
    if deleted < p_limit and v_hi is null then
        delete from stream_trims t where t.stream_id = v_id;
    else
        update stream_trims t
           set swept = coalesce(v_swept, t.swept), due_at = case when deleted < p_limit then p_now + interval '1 hour' else t.due_at end
         where t.stream_id = v_id;
    end if;
    more := deleted >= p_limit
         or exists (select from stream_trims t where t.due_at <= p_now and t.stream_id <> v_id)
         or exists (select from stream_trims t where t.due_at > v_far and t.stream_id <> v_id);
    return next;
end
$$;
comment on function rouse._retention_sweep(integer, timestamptz) is 'retention_sweep at a chosen time.';

create or replace function rouse.retention_sweep(p_limit integer)
returns table (deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_sweep(p_limit, clock_timestamp())
$$;
comment on function rouse.retention_sweep(integer) is 'Deletes messages below the heads of trimmed streams, in bounded steps.';
