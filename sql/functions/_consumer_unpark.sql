-- _consumer_unpark: lets a locked, parked consumer be woken again, from its
-- policy's first target on, unless its entity is paused. Returns the wake, for
-- the caller to publish, or null.
create or replace function rouse._consumer_unpark(p_consumer rouse.consumers, p_reason text, p_now timestamptz) returns uuid
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_c consumers;
begin
    update consumers c
       set parked_at = null, parked_reason = null, attempts = 0, fruitless = 0, target_index = 0,
           paused = coalesce((select e.status = 'paused' from entities e where e.url = c.entity_url and e.service_id = c.service_id), false)
     where c.id = p_consumer.id
    returning * into v_c;
    update entity_dispatch_state d
       set pending_since = case when d.pending_since is not null then p_now end, last_error = null, updated_at = p_now
     where d.entity_url = v_c.entity_url and d.service_id = v_c.service_id;
    return _wake_move(v_c, 0, p_reason, p_now);
end
$$;
comment on function rouse._consumer_unpark(rouse.consumers, text, timestamptz) is 'Lets a parked consumer be woken again.';
