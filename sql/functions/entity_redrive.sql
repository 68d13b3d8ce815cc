-- _entity_redrive, entity_redrive: lets parked work go on, at a chosen time: its
-- attempts are counted anew, from its policy's first target on. Who made the
-- entity may, and who has manage on it.
-- Outcomes: redriven, not_parked, not_found, forbidden, and no_target: every
-- target of its policy is gone, so it stays as it is.
create or replace function rouse._entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_now timestamptz) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_e    entities;
    v_c    consumers;
    v_now  timestamptz;
    v_wake uuid;
begin
    select * into v_e from entities e where e.url = p_url and e.service_id = p_service_id;
    if not found then
        return 'not_found';
    end if;
    select * into v_c from consumers c where c.id = v_e.consumer_id for update;
    v_now := coalesce(p_now, clock_timestamp());
    if not (p_trusted or v_e.created_by = p_principal or _entity_may(p_service_id, p_url, p_principal, 'manage', v_now)) then
        return 'forbidden';
    elsif v_c.parked_at is null then
        return 'not_parked';
    elsif _targets_gone(p_service_id, v_e.dispatch_policy) then
        return 'no_target';
    end if;
    v_wake := _consumer_unpark(v_c, 'redriven', v_now);
    if v_wake is not null then
        perform _wake_publish(array[v_wake], v_now);
    end if;
    perform audit_add(p_service_id, p_principal, 'entity.redrive', p_url, jsonb_build_object('reason', v_c.parked_reason));
    return 'redriven';
end
$$;
comment on function rouse._entity_redrive(integer, text, text, boolean, timestamptz) is 'entity_redrive at a chosen time; null reads the clock behind the lock.';

create or replace function rouse.entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean) returns text
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
    select _entity_redrive(p_service_id, p_url, p_principal, p_trusted, null)
$$;
comment on function rouse.entity_redrive(integer, text, text, boolean) is 'Lets parked work go on.';
