-- runner_list: the runners of an owner (null: of everybody) by id, above one.
create or replace function rouse.runner_list(p_service_id integer, p_owner text, p_after text, p_limit integer)
returns table (runner rouse.runners, diagnostics rouse.runner_runtime_diagnostics, lease_remaining_ms bigint, active_claims jsonb)
language sql stable
set search_path = rouse, pg_temp
as $$
    select g.* from (
        select r.id from runners r
         where r.service_id = p_service_id and (p_owner is null or r.owner_principal = p_owner) and (p_after is null or r.id > p_after)
         order by r.id
         limit p_limit) x
     cross join lateral runner_get(p_service_id, x.id) g
     order by x.id
$$;
comment on function rouse.runner_list(integer, text, text, integer) is 'The runners of an owner.';
