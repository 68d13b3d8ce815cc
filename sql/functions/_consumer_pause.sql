-- _consumer_pause: a paused consumer is not woken and grants nothing; work it
-- gets meanwhile stays pending. Pausing supersedes an outstanding wake; a live
-- claim runs to its end. Resuming mints a wake if work is pending; what is
-- parked stays paused until somebody redrives it. Takes the
-- consumer's row lock; the clock in p_now must have been read after it.
create or replace function rouse._consumer_pause(p_consumer_id bigint, p_paused boolean, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_c     consumers;
    v_wakes uuid[];
begin
    select * into v_c from consumers c where c.id = p_consumer_id for update;
    if not found or v_c.state = 'stopped' or v_c.paused = p_paused or v_c.parked_at is not null then
        return;
    end if;
    if p_paused and v_c.state = 'waking' then
        v_c := _wake_supersede(v_c, p_now);
    end if;
    update consumers c set paused = p_paused where c.id = p_consumer_id returning * into v_c;
    if not p_paused and v_c.state = 'idle' and _consumer_pending(v_c.id) then
        -- While it was paused nobody could take it: that is no time to be given up for.
        update entity_dispatch_state d set pending_since = p_now
         where d.entity_url = v_c.entity_url and d.service_id = v_c.service_id and d.pending_since is not null;
        select array_agg(w.wake_id) into v_wakes from _wake_mint(array[v_c.id], array['resumed'], p_now) w;
        if v_wakes is not null then
            perform _wake_publish(v_wakes, p_now);
        end if;
    end if;
end
$$;
comment on function rouse._consumer_pause(bigint, boolean, timestamptz) is 'Stops or restarts the waking of a consumer.';
