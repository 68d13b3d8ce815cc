-- _dispatch_route, dispatch_route: what the wake router calls once for
-- everything one batch of the log touched: (stream, position) pairs of
-- actionable appends. An idle
-- consumer with pending work gets its next wake; while a wake or a claim is
-- open only the pending offsets move (RFC "coalesce duplicate wake").
-- Outcomes: minted, coalesced, idle (nothing pending, stopped, paused, or not
-- an entity's stream), no_target, retry (locked by somebody else, or the append
-- is not visible to this snapshot yet: call again shortly). p_now is the chosen
-- time of a test; null reads the clock after each lock.
create or replace function rouse._dispatch_route(p_streams bigint[], p_positions bigint[], p_now timestamptz)
returns table (stream_id bigint, outcome text)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_in       record;
    v_c        consumers;
    v_s        record;
    v_wake     uuid;
    v_services integer[] := '{}';
    v_wakes    uuid[] := '{}';
    v_now      timestamptz;
begin
    for v_in in
        select i.id, i.position, s.consumer_id
          from unnest(p_streams, p_positions) as i (id, position)
          left join streams s on s.id = i.id
         order by s.consumer_id
    loop
        stream_id := v_in.id;
        if v_in.consumer_id is null then
            -- Not linked to a consumer; a stream created a moment ago may not
            -- be visible yet.
            outcome := case when exists (select from streams s where s.id = v_in.id) then 'idle' else 'retry' end;
            return next;
            continue;
        end if;
        select * into v_c from consumers c where c.id = v_in.consumer_id for update skip locked;
        if v_c.id is null then
            outcome := 'retry';
            return next;
            continue;
        end if;
        v_now := coalesce(p_now, clock_timestamp());
        select s.path, s.tail, s.actionable, cs.acked into v_s
          from streams s join consumer_streams cs on cs.stream_id = s.id and cs.consumer_id = v_c.id
         where s.id = v_in.id;
        if v_s.actionable < v_in.position then
            outcome := 'retry';
        elsif v_s.actionable <= v_s.acked or v_c.state = 'stopped' or v_c.paused or v_s.path is null then
            outcome := 'idle';
        elsif v_c.state = 'idle' then
            v_wake := _wake_mint(v_c, 'message_received', v_now);
            if v_wake is null then
                -- The policy never changes: the scan need not come back for this.
                outcome := 'no_target';
                update streams s set pending = false where s.id = v_in.id and s.pending and s.actionable = v_s.actionable;
            else
                outcome := 'minted';
                v_services := v_services || v_c.service_id;
                v_wakes := v_wakes || v_wake;
            end if;
        else
            outcome := 'coalesced';
            update entity_dispatch_state d
               set pending_source_streams = jsonb_build_array(jsonb_build_object('path', '/' || v_s.path, 'offset', _offset(v_s.tail),
                                                                               'ackedOffset', _offset(v_s.acked))),
                   pending_reason = 'message_received', pending_since = coalesce(d.pending_since, v_now),
                   updated_at = v_now
             where d.service_id = v_c.service_id and d.entity_url = v_c.entity_url;
            if v_c.state = 'waking' and v_c.runner_id is null then
                -- A receiver that refused the wake for good is asked once more
                -- for each new message: the refusal may have been mended.
                update wake_notifications n set delivery_status = 'queued', next_attempt_at = v_now
                 where n.wake_id = v_c.wake_id and n.delivery_status = 'failed';
                if found then
                    v_services := v_services || v_c.service_id;
                    v_wakes := v_wakes || v_c.wake_id;
                end if;
            end if;
        end if;
        return next;
    end loop;
    perform _wake_publish(v_services, v_wakes, coalesce(p_now, clock_timestamp()));
end
$$;
comment on function rouse._dispatch_route(bigint[], bigint[], timestamptz) is 'dispatch_route at a chosen time, for tests.';

create or replace function rouse.dispatch_route(p_streams bigint[], p_positions bigint[])
returns table (stream_id bigint, outcome text)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
begin
    return query select * from _dispatch_route(p_streams, p_positions, null);
end
$$;
comment on function rouse.dispatch_route(bigint[], bigint[]) is 'Wakes the owners of streams that got actionable appends.';
