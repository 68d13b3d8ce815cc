-- _pool_stream: the wake stream of a worker pool, null if there is no such pool.
-- A function of its own, so that a statement on wakes of whatever target opens
-- the pools' table only for a wake that is a pool's.
create or replace function rouse._pool_stream(p_service_id integer, p_pool text) returns text
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return (select w.wake_stream from worker_pools w where w.id = p_pool and w.service_id = p_service_id);
end
$$;
comment on function rouse._pool_stream(integer, text) is 'The wake stream of a worker pool.';
