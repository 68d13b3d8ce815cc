-- parked_redrive: redrives all parked work that a principal may redrive, of one
-- entity type and with one reason if they are given, at most p_limit, longest
-- parked first. What has no target that is there would be parked again at once,
-- and is left. Returns how much; call again while that is p_limit.
create or replace function rouse.parked_redrive(
    p_service_id integer, p_principal text, p_system boolean, p_type text, p_reason text, p_limit integer
) returns integer
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
declare
    v_ids   bigint[];
    v_count integer := 0;
    v_wake  uuid;
    v_wakes uuid[] := '{}';
    r       record;
begin
    select array_agg(x.id) into v_ids from (
        select c.id from consumers c
          join entities e on e.url = any (array[c.entity_url]) and e.service_id = c.service_id
         where c.parked_at is not null and c.service_id = p_service_id and c.state <> 'stopped'
           and (p_type is null or e.type = p_type) and (p_reason is null or c.parked_reason = p_reason)
           and (c.parked_reason <> 'no_target' or not _targets_gone(p_service_id, e.dispatch_policy))
           and (p_system or e.created_by = p_principal or _entity_may(p_service_id, e.url, p_principal, 'manage', clock_timestamp()))
         order by c.parked_at, c.id limit p_limit) x;
    -- Several are locked by id; one that somebody else has redriven meanwhile is left out below.
    perform 1 from consumers c where c.id = any (v_ids) order by c.id for update;
    -- Their wakes are published together: wake streams are locked by id.
    for r in select c as consumer from consumers c where c.id = any (v_ids) and c.parked_at is not null order by c.id loop
        v_count := v_count + 1;
        perform audit_add(p_service_id, p_principal, 'entity.redrive', (r.consumer).entity_url, jsonb_build_object('reason', (r.consumer).parked_reason));
        v_wake := _consumer_unpark(r.consumer, 'redriven', clock_timestamp());
        if v_wake is not null then
            v_wakes := v_wakes || v_wake;
        end if;
    end loop;
    if v_wakes <> '{}' then
        perform _wake_publish(v_wakes, clock_timestamp());
    end if;
    return v_count;
end
$$;
comment on function rouse.parked_redrive(integer, text, boolean, text, text, integer) is 'Redrives parked work.';
