-- pool_reader: how a principal may read a pool's wake stream. With a runner:
-- member, if it is an active one of the principal's own (p_system: anybody's),
-- and with it the key that entries are sealed to for it, or not_member. Without:
-- reader, for the pool's owner and the owners of active members, or forbidden.
-- No row when there is no such pool.
create or replace function rouse.pool_reader(p_service_id integer, p_pool_id text, p_principal text, p_system boolean, p_runner_id text)
returns table (outcome text, wake_key bytea)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    if p_runner_id is null then
        return query
        select case when p_system or w.owner_principal = p_principal
                         or exists (select from worker_pool_members m
                                     where m.owner_principal = p_principal and m.pool_id = w.id and m.service_id = w.service_id and m.status = 'active')
                    then 'reader' else 'forbidden' end, null::bytea
          from worker_pools w where w.id = p_pool_id and w.service_id = p_service_id;
        return;
    end if;
    return query
    select case when m.status = 'active' and (p_system or r.owner_principal = p_principal) then 'member' else 'not_member' end, r.wake_key
      from worker_pools w
      left join worker_pool_members m on m.pool_id = w.id and m.runner_id = p_runner_id and m.service_id = w.service_id
      left join runners r on r.id = m.runner_id and r.service_id = m.service_id
     where w.id = p_pool_id and w.service_id = p_service_id;
end
$$;
comment on function rouse.pool_reader(integer, text, text, boolean, text) is 'How somebody may read a pool''s wake stream.';
