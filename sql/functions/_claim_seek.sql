-- _claim_seek: names the consumer for a runner's acquire that names none, and
-- locks it. The attempt may have been granted already; else it is for the
-- oldest wake that waits for the runner, or for a pool whose active member it is
-- and that has room, and that nobody else is taking at this moment. Returns the call with id and wake filled in, as op nothing when
-- nothing waits, busy when what is left over is locked (only without p_wait).
create or replace function rouse._claim_seek(p_op rouse.claim_op, p_wait boolean, p_now timestamptz) returns rouse.claim_op
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_pools text[];
begin
    select c.id, c.wake_id into p_op.id, p_op.wake from consumer_claims k
      join consumers c on c.service_id = k.service_id and c.name = k.consumer_id and c.epoch = k.epoch
     where k.service_id = p_op.service and k.runner_id = p_op.runner and k.status = 'active'
       and c.state = 'claimed' and c.claim_id = p_op.claim_id and c.lease_expires_at > coalesce(p_now, clock_timestamp());
    if not found then
        select array_agg(m.pool_id order by m.pool_id) into v_pools from worker_pool_members m
         where m.runner_id = p_op.runner and m.service_id = p_op.service and m.status = 'active';
        if v_pools is not null then
            return _claim_seek_pools(p_op, v_pools, p_wait, p_now);
        end if;
        select c.id, n.wake_id into p_op.id, p_op.wake from wake_notifications n
          join consumers c on c.service_id = n.service_id and c.name = n.consumer_id and c.wake_id = n.wake_id
         where n.service_id = p_op.service and n.target_runner_id = p_op.runner
           and n.resolved_at is null and n.claim_status = 'unclaimed' and c.state = 'waking'
         order by n.created_at limit 1 for update of c skip locked;
    end if;
    if not found then
        -- A locked one may yet be left over: look again, and wait for it.
        select c.id, n.wake_id into p_op.id, p_op.wake from wake_notifications n
          join consumers c on c.service_id = n.service_id and c.name = n.consumer_id
         where n.service_id = p_op.service and n.target_runner_id = p_op.runner
           and n.resolved_at is null and n.claim_status = 'unclaimed'
         order by n.created_at limit 1;
    end if;
    p_op.op := case when p_op.id is null then 'nothing' else 'acquire' end;
    if p_wait then
        perform 1 from consumers c where c.id = p_op.id for update;
    else
        perform 1 from consumers c where c.id = p_op.id for update skip locked;
        p_op.busy := p_op.id is not null and not found;
    end if;
    return p_op;
end
$$;
comment on function rouse._claim_seek(rouse.claim_op, boolean, timestamptz) is 'Names and locks what waits for a runner.';
