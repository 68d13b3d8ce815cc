-- _dispatch_act: carries out what _dispatch_judge finds about a consumer whose
-- row the caller has locked, at p_now, and says what that was: moved, parked or
-- stays. wake is to be published: the new one, or the same one where it stays
-- and it is time to tell it again. A wake that stays gets its next due time.
create or replace function rouse._dispatch_act(p_consumer rouse.consumers, p_now timestamptz, out acted text, out wake uuid)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_j     record;
    v_again timestamptz;
begin
    select * into v_j from _dispatch_judge(p_consumer, p_now);
    if v_j.verdict = 'park' then
        perform _consumer_park(p_consumer, v_j.reason, p_now);
        acted := 'parked';
    elsif v_j.verdict = 'move' then
        wake := _wake_move(p_consumer, v_j.target, 'target_moved', p_now);
        -- Without a target that can be told, the mint has parked it.
        acted := case when wake is null then 'parked' else 'moved' end;
    else
        acted := 'stays';
        if p_consumer.runner_id is not null or p_consumer.pool_id is not null then
            v_again := coalesce(p_consumer.look_at, p_consumer.told_at + p_consumer.wake_ttl_ms * interval '1 ms' * (
                select 1 << least(greatest(n.attempts - 3, 0), 5) from wake_notifications n where n.wake_id = p_consumer.wake_id));
            if v_again <= p_now and v_j.state = 'ok' then
                wake := p_consumer.wake_id;
            end if;
        end if;
        update consumers c
           set due_at = least(v_j.due_at, case when v_again > p_now then v_again end),
               told_at = case when v_again <= p_now and (c.look_at is null or wake is not null) then p_now else c.told_at end,
               look_at = case when v_again <= p_now and c.look_at is not null and wake is null then p_now + c.wake_ttl_ms * interval '1 ms'
                              when v_again <= p_now then null else c.look_at end
         where c.id = p_consumer.id;
    end if;
end
$$;
comment on function rouse._dispatch_act(rouse.consumers, timestamptz) is 'Lets a waiting wake stay, move on or be given up, at a chosen time.';
