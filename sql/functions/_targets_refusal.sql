-- _targets_refusal: why a principal may not give an entity a dispatch policy;
-- null when it may. A runner is its owner's to target, a pool its owner's and
-- that of the owners of its active members. runner_not_found, runner_forbidden,
-- pool_not_found, pool_forbidden, of the first target that is refused.
create or replace function rouse._targets_refusal(p_service_id integer, p_policy jsonb, p_principal text, p_system boolean) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_target jsonb;
    v_owner  text;
begin
    for v_target in
        select t from jsonb_array_elements(coalesce(p_policy -> 'targets', '[]')) t where t ->> 'type' in ('runner', 'worker-pool')
    loop
        if v_target ->> 'type' = 'runner' then
            select r.owner_principal into v_owner from runners r where r.id = v_target ->> 'runnerId' and r.service_id = p_service_id;
            if not found then
                return 'runner_not_found';
            elsif not (p_system or v_owner = p_principal) then
                return 'runner_forbidden';
            end if;
        else
            select w.owner_principal into v_owner from worker_pools w where w.id = v_target ->> 'workerPoolId' and w.service_id = p_service_id;
            if not found then
                return 'pool_not_found';
            elsif not (p_system or v_owner = p_principal or exists (
                    select from worker_pool_members m
                     where m.pool_id = v_target ->> 'workerPoolId' and m.service_id = p_service_id
                       and m.owner_principal = p_principal and m.status = 'active')) then
                return 'pool_forbidden';
            end if;
        end if;
    end loop;
    return null;
end
$$;
comment on function rouse._targets_refusal(integer, jsonb, text, boolean) is 'Why a principal may not use a dispatch policy.';
