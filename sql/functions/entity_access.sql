-- entity_access: one entity, and whether the principal may do p_permission to
-- it; a null principal may everything. No row when there is no such entity.
create or replace function rouse.entity_access(p_service_id integer, p_url text, p_principal text, p_permission text)
returns table (allowed boolean, entity rouse.entities)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_row entities;
begin
    select * into v_row from entities e where e.service_id = p_service_id and e.url = p_url;
    if found then
        return query select p_principal is null or v_row.created_by = p_principal
                         or _entity_may(p_service_id, p_url, p_principal, p_permission, clock_timestamp()), v_row;
    end if;
end
$$;
comment on function rouse.entity_access(integer, text, text, text) is 'One entity and whether a principal may do something to it.';
