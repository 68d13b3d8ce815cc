-- _targets_gone: whether every target of a policy is a runner or pool that is
-- not there (any more), so that a wake would go to nobody.
create or replace function rouse._targets_gone(p_service_id integer, p_policy jsonb) returns boolean
language sql stable
set search_path = rouse, pg_temp
as $$
    select not exists (
        select from jsonb_array_elements(p_policy -> 'targets') t
         where case t ->> 'type'
               when 'runner' then exists (select from runners r where r.id = t ->> 'runnerId' and r.service_id = p_service_id)
               when 'worker-pool' then exists (select from worker_pools w where w.id = t ->> 'workerPoolId' and w.service_id = p_service_id)
               else true end)
$$;
comment on function rouse._targets_gone(integer, jsonb) is 'Whether no target of a policy is there.';
