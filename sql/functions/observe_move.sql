-- observe_move: moves cursors from where they were read (p_from, with p_was
-- collected and p_due come) to p_to and, in the same transaction, appends the
-- wakes that were found to the subscribers' main streams, which wake them as any
-- actionable append does. Another gateway that has evaluated the same page, or
-- the same due time, finds the cursor otherwise than it was read and changes
-- nothing: a wake is delivered once, and a crash before the commit loses none.
-- p_states is what a debounce has collected, p_due_ms when it or a timeout is
-- due from now; null keeps neither, a negative due keeps the present one.
-- p_over ends the registration. p_rows are the wakes, p_of says which cursor's
-- (from 1), in order. Waits for no row, unless p_wait.
-- Outcomes: applied | gone (removed) | stale | busy.
create or replace function rouse.observe_move(
    p_ids bigint[], p_from bigint[], p_was text[], p_due boolean[], p_to bigint[], p_states text[], p_due_ms integer[], p_over boolean[],
    p_rows text[], p_of integer[], p_wait boolean
) returns table (id bigint, outcome text)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    o      observers%rowtype;
    v_own  bigint;
    v_main bigint;
    v_rows text[];
    v_row  text;
    v_now  timestamptz;
    v_gone bigint[] := '{}';
begin
    for i in 1 .. cardinality(p_ids) loop
        id := p_ids[i];
        if p_wait then
            -- Streams before observers, as an append has it.
            perform 1 from streams s
              where s.id = (select _entity_main(b.service_id, b.subscriber_url) from observers b where b.id = p_ids[i]) for no key update;
        end if;
        select * into o from observers b where b.id = p_ids[i] for update skip locked;
        -- What is due moves no cursor: that it was told shows in what is collected and in the due time.
        if not found or o.acked <> p_from[i] or o.state is distinct from p_was[i]
           or p_due[i] and not coalesce(o.due_at <= clock_timestamp(), false) then
            outcome := case when o.id is null and exists (select from observers b where b.id = p_ids[i]) then 'busy' else 'stale' end;
            return next;
            continue;
        end if;
        v_rows := array(select r.row from unnest(p_rows, p_of) with ordinality r (row, of, ord) where r.of = i order by r.ord);
        if v_rows <> '{}' then
            v_own := _entity_main(o.service_id, o.subscriber_url);
            v_main := null;
            select s.id into v_main from streams s
             where s.id = v_own and s.closed_at is null and s.deleted_at is null for no key update skip locked;
            if v_main is null and exists (select from streams s where s.id = v_own and s.closed_at is null and s.deleted_at is null) then
                outcome := 'busy';
                return next;
                continue;
            elsif v_main is null then
                -- The subscriber has ended: it is woken no more.
                delete from observers b where b.id = o.id;
                v_gone := v_gone || o.stream_id;
                outcome := 'gone';
                return next;
                continue;
            end if;
            foreach v_row in array v_rows loop
                perform _stream_push(v_main, v_row, true);
            end loop;
        end if;
        if p_over[i] then
            delete from observers b where b.id = o.id;
            v_gone := v_gone || o.stream_id;
            outcome := 'gone';
            return next;
            continue;
        end if;
        v_now := clock_timestamp();
        update observers b
           set acked = p_to[i], state = p_states[i],
               due_at = case when p_due_ms[i] < 0 then b.due_at else v_now + make_interval(secs => p_due_ms[i] / 1000.0) end
         where b.id = o.id;
        perform _observer_moved(o.id, o.stream_id, p_to[i]);
        outcome := 'applied';
        return next;
    end loop;
    if v_gone <> '{}' then
        perform _observer_gone(v_gone);
    end if;
end
$$;
comment on function rouse.observe_move(bigint[], bigint[], text[], boolean[], bigint[], text[], integer[], boolean[], text[], integer[], boolean) is 'Moves cursors and appends the wakes found, in one transaction.';
