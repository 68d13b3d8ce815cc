-- _consumer_lock: takes a consumer's row lock. With p_wait it waits (bounded by
-- lock_timeout); without, a locked row is passed over and v_id comes back with
-- an empty row, so that one contended consumer never stalls a batch.
create or replace function rouse._consumer_lock(p_consumer_id bigint, p_wait boolean) returns rouse.consumers
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_c consumers;
begin
    if p_wait then
        select * into v_c from consumers c where c.id = p_consumer_id for update;
    else
        select * into v_c from consumers c where c.id = p_consumer_id for update skip locked;
    end if;
    return v_c;
end
$$;
comment on function rouse._consumer_lock(bigint, boolean) is 'Locks a consumer''s row; null when passed over.';
