-- shared_state_admit: whether a caller may read or write (p_permission) a shared
-- state: by a permission on an entity that uses it, or as the holder of such an
-- entity's live claim. With p_owner, an entity that the caller may write itself,
-- that entity begins to use it: so is a shared state made.
-- Outcomes: ok | forbidden.
create or replace function rouse.shared_state_admit(
    p_service_id integer, p_principal text, p_trusted boolean, p_path text, p_permission text, p_owner text,
    p_consumer_id bigint, p_epoch bigint, p_wake_id uuid
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_consumer consumers%rowtype;
    v_holder   text;
begin
    if p_consumer_id is not null then
        select * into v_consumer from consumers c where c.id = p_consumer_id and c.service_id = p_service_id;
        if found and _claim_fence(v_consumer, p_epoch, p_wake_id, clock_timestamp()) = 'ok' then
            v_holder := v_consumer.entity_url;
        end if;
    end if;
    if p_owner is not null and exists (select from entities e where e.url = p_owner and e.service_id = p_service_id)
       and (p_trusted or p_owner = v_holder or exists (select from entity_allowed(p_service_id, p_principal, 'write', array[p_owner]))) then
        if _shared_state_link(p_service_id, p_path, p_owner, '', p_principal, p_trusted) then
            return 'ok';
        end if;
    end if;
    return case when p_trusted
                  or v_holder is not null and exists (select from shared_state_links l
                       where l.path = p_path and l.service_id = p_service_id and l.entity_url = v_holder)
                  or _shared_state_may(p_service_id, p_principal, p_permission, p_path) then 'ok' else 'forbidden' end;
end
$$;
comment on function rouse.shared_state_admit is 'Whether a caller may read or write a shared state.';
