-- _stream_trim: moves a stream's head up to the last append that ends at p_to or
-- before; a read below it is answered 410. The rows go later (retention_sweep).
-- Not beyond what somebody has still to read: the cursor of every subscription
-- and observer, and of the entity whose stream it is while it has work to do. With
-- p_force those cursors are moved to the new head instead, and what they had
-- not read is lost to them. Of a wake stream, whatever p_force says, entries of
-- wakes that are open and were not told again behind them stay.
-- Without p_wait nothing is waited for. Consumers come before streams; the
-- stream is locked against forks, which inherit its head.
-- Outcomes: trimmed | unchanged | busy | not_found | guarded (a kind of stream
-- that the gateway itself lives on). head and tail are those after; limited_by
-- says what held the head back: cursor | wake, null for nothing.
create or replace function rouse._stream_trim(p_stream_id bigint, p_to bigint, p_force boolean, p_wait boolean, p_now timestamptz)
returns table (outcome text, head bigint, tail bigint, limited_by text)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_consumer bigint;
    v_free     boolean := true;  -- the entity, if it is one's, has no work
    v_to       bigint := p_to;
    v_cap      bigint;
    c          consumers%rowtype;
    s          streams%rowtype;
begin
    select t.consumer_id into v_consumer from streams t where t.id = p_stream_id;
    if v_consumer is not null then
        if p_wait then
            select * into c from consumers t where t.id = v_consumer for update;
        else
            select * into c from consumers t where t.id = v_consumer for update skip locked;
        end if;
        if not found then
            return query select 'busy', null::bigint, null::bigint, null::text;
            return;
        end if;
    end if;
    if p_wait then
        select * into s from streams t where t.id = p_stream_id for update;
    else
        select * into s from streams t where t.id = p_stream_id for update skip locked;
    end if;
    if not found then
        return query select case when exists (select from streams t where t.id = p_stream_id) then 'busy' else 'not_found' end,
                            null::bigint, null::bigint, null::text;
        return;
    end if;
    head := s.head; tail := s.tail;
    if s.path is null or s.deleted_at is not null then
        outcome := 'not_found';
    elsif s.kind not in ('app', 'entity', 'error', 'shared', 'cron', 'wake') then
        outcome := 'guarded';
    elsif v_to <= s.head then
        outcome := 'unchanged';
    end if;
    if outcome is not null then
        return next;
        return;
    end if;

    if s.kind = 'wake' then
        v_cap := _wake_stream_floor(s.service_id, s.path);
        if v_cap < v_to then
            v_to := v_cap;
            limited_by := 'wake';
        end if;
    end if;
    v_free := c.id is null or c.state = 'stopped' or c.state = 'idle'
              and not exists (select from consumer_streams cs where cs.consumer_id = c.id and cs.stream_id = s.id and cs.acked < s.actionable);
    if not p_force then
        v_cap := least((select min(cs.acked) from consumer_streams cs
                         where cs.stream_id = s.id and not (v_free and cs.link_type = 'own')),
                       (select min(o.acked) from observers o where o.stream_id = s.id));
        if v_cap < v_to then
            v_to := v_cap;
            limited_by := 'cursor';
        end if;
    end if;
    -- To the end of an append: what a read begins with is whole.
    if v_to < s.tail then
        v_to := (select max(x.position)
                   from _stream_chain(s.id, s.tail) k
                  cross join lateral (select x.position from messages x
                                       where x.stream_id = k.stream_id and x.position > greatest(k.lo, s.head) and x.position <= least(k.hi, v_to)
                                       order by x.position desc limit 1) x);
    end if;
    if v_to is null or v_to <= s.head then
        outcome := 'unchanged';
        return next;
        return;
    end if;
    v_to := least(v_to, s.tail);
    if not p_wait and exists (select from stream_trims t where t.stream_id = s.id) then
        -- A step that deletes its rows holds this for as long as it takes, and appends would wait with us.
        perform 1 from stream_trims t where t.stream_id = s.id for update skip locked;
        if not found then
            outcome := 'busy';
            return next;
            return;
        end if;
    end if;

    perform _retention_uncount(s.id, s.head, v_to);
    update streams t set head = v_to where t.id = s.id;
    update consumer_streams cs set acked = v_to, behind = cs.behind and s.tail > v_to where cs.stream_id = s.id and cs.acked < v_to;
    update observers o set acked = v_to, behind = o.behind and s.tail > v_to where o.stream_id = s.id and o.acked < v_to;
    -- Where nothing is left to delete, everything up to the old head is gone.
    insert into stream_trims as t (stream_id, swept, due_at) values (s.id, s.head, p_now)
    on conflict on constraint stream_trims_pkey do update set due_at = least(t.due_at, excluded.due_at);
    delete from stream_marks m where m.stream_id = s.id and m.tail <= v_to;
    outcome := 'trimmed';
    head := v_to;
    return next;
end
$$;
comment on function rouse._stream_trim(bigint, bigint, boolean, boolean, timestamptz) is 'Moves a stream''s head, not beyond what somebody has still to read.';
