-- _wake_move: takes back the outstanding wake of a locked consumer, if there is
-- one, and mints the next for the policy's target p_target or, where that would
-- not take it, one behind it. Returns the wake, for the caller to publish; null
-- when there is nobody to tell, nothing to do, or the consumer is paused.
create or replace function rouse._wake_move(p_consumer rouse.consumers, p_target integer, p_reason text, p_now timestamptz) returns uuid
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_c consumers := p_consumer;
begin
    if v_c.state = 'waking' then
        v_c := _wake_supersede(v_c, p_now);
    end if;
    update consumers c set target_index = p_target, due_at = null where c.id = v_c.id and c.state = 'idle' returning * into v_c;
    if not found or v_c.paused or not _consumer_pending(v_c.id) then
        return null;
    end if;
    return (select w.wake_id from _wake_mint(array[v_c.id], array[p_reason], p_now) w);
end
$$;
comment on function rouse._wake_move(rouse.consumers, integer, text, timestamptz) is 'Replaces an outstanding wake by one for another target.';
