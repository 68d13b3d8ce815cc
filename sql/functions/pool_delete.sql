-- pool_delete: removes a pool with its members and its wake stream; its id stays
-- its owner's (retired_pools). What is held runs to its end. Wakes that wait for it are looked
-- at by claim_reap at once: each moves on to its policy's next target, or its
-- work is parked as no_target.
-- Outcomes: deleted, not_found, forbidden.
create or replace function rouse.pool_delete(p_service_id integer, p_id text, p_principal text, p_system boolean)
returns table (outcome text, txid bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_row    worker_pools;
    v_due    bigint[];
    v_stream bigint;
begin
    select * into v_row from worker_pools w where w.id = p_id and w.service_id = p_service_id;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    elsif v_row.owner_principal <> p_principal and not p_system then
        return query select 'forbidden', null::bigint;
        return;
    end if;
    -- Consumers come before pools. One that somebody else has locked is looked at when it is due anyway.
    select array_agg(x.id) into v_due
      from (select c.id from wake_notifications n
              join consumers c on c.name = any (array[n.consumer_id]) and c.service_id = n.service_id and c.wake_id = n.wake_id and c.state = 'waking'
             where n.target_pool_id = p_id and n.service_id = p_service_id and n.resolved_at is null and n.claim_status = 'unclaimed'
               for update of c skip locked) x;
    delete from worker_pools w where w.id = p_id and w.service_id = p_service_id returning * into v_row;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    end if;
    insert into retired_pools as x (service_id, id, owner_principal, join_generation)
    values (p_service_id, p_id, v_row.owner_principal, v_row.join_generation)
    on conflict (id, service_id) do update
       set owner_principal = excluded.owner_principal, join_generation = excluded.join_generation, retired_at = clock_timestamp();
    delete from worker_pool_members m where m.pool_id = p_id and m.service_id = p_service_id;
    delete from barred_pool_members b where b.pool_id = p_id and b.service_id = p_service_id;
    update consumers c set due_at = clock_timestamp() where c.id = any (v_due);
    select s.id into v_stream from streams s where s.path = ltrim(v_row.wake_stream, '/') and s.service_id = p_service_id for update;
    if found then
        perform _stream_retire(v_stream, clock_timestamp());
    end if;
    perform audit_add(p_service_id, p_principal, 'pool.delete', '/worker-pools/' || p_id, null);
    return query select 'deleted', _txid();
end
$$;
comment on function rouse.pool_delete(integer, text, text, boolean) is 'Removes a worker pool.';
