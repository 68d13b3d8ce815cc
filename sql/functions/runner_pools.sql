-- runner_pools: the pools a runner is in or invited to, by id. status is the
-- member's; a disabled pool is not shown apart, it just grants nothing.
create or replace function rouse.runner_pools(p_service_id integer, p_runner_id text)
returns table (pool_id text, wake_stream text, status text)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select m.pool_id, w.wake_stream, m.status
      from worker_pool_members m join worker_pools w on w.id = any (array[m.pool_id]) and w.service_id = m.service_id
     where m.runner_id = p_runner_id and m.service_id = p_service_id
     order by m.pool_id;
end
$$;
comment on function rouse.runner_pools(integer, text) is 'The pools of a runner.';
