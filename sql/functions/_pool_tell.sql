-- _pool_tell: tells a pool again of the wakes that wait for it (_pool_waiting):
-- same wakes, same epochs. Returns how many. The caller may hold the pool's row:
-- nothing is waited for but its wake stream.
create or replace function rouse._pool_tell(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_wakes uuid[] := _pool_waiting(p_service_id, p_pool_id, p_limit, p_now);
begin
    if v_wakes is not null then
        perform _wake_publish(v_wakes, p_now);
    end if;
    return coalesce(cardinality(v_wakes), 0);
end
$$;
comment on function rouse._pool_tell(integer, text, integer, timestamptz) is 'Tells a pool again of the wakes that wait for it.';
