-- _retention_readers: the runners (p_walk wake_streams) or pools (pool_streams)
-- behind a cursor, with the paths of their wake streams; key is the cursor to go
-- on behind.
create or replace function rouse._retention_readers(p_walk text, p_after text, p_limit integer)
returns table (id text, service_id integer, path text, key text)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_service integer := coalesce(nullif(split_part(p_after, ' ', 1), '')::integer, 0);
    v_id      text := substr(p_after, strpos(p_after, ' ') + 1);
begin
    if p_walk = 'pool_streams' then
        return query
        select p.id, p.service_id, 'worker-pools/' || p.id || '/wake', p.service_id || ' ' || p.id
          from worker_pools p where (p.id, p.service_id) > (v_id, v_service) order by p.id, p.service_id limit p_limit;
    else
        return query
        select r.id, r.service_id, ltrim(r.wake_stream, '/'), r.service_id || ' ' || r.id
          from runners r where (r.id, r.service_id) > (v_id, v_service) order by r.id, r.service_id limit p_limit;
    end if;
end
$$;
comment on function rouse._retention_readers(text, text, integer) is 'The runners or pools whose wake streams a walk looks at next.';
