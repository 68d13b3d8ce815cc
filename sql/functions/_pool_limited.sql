-- _pool_limited: true if a worker pool limits its claims. A function of its own,
-- so that the end of a claim opens the pools' table only for a pool's.
create or replace function rouse._pool_limited(p_service_id integer, p_pool text) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    return (select true from worker_pools w
             where w.id = p_pool and w.service_id = p_service_id
               and (w.max_total_claims is not null or w.max_concurrent_claims_per_runner is not null));
end
$$;
comment on function rouse._pool_limited(integer, text) is 'Whether a worker pool limits its claims.';
