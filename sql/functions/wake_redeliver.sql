-- _wake_redeliver, wake_redeliver: tells an open wake again at once because a
-- person wants it, at a chosen time, and notes who: the same wake, the same epoch, so the
-- receiver sees the same idempotency key. A wake that its receiver had refused
-- for good gets its retries back. Outcomes: redelivered; claimed (somebody works
-- on it); resolved (it is over); not_found.
create or replace function rouse._wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text, p_now timestamptz) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_n wake_notifications;
    v_c consumers;
begin
    select c.* into v_c from wake_notifications n join consumers c on c.service_id = n.service_id and c.name = n.consumer_id
     where n.service_id = p_service_id and n.wake_id = p_wake_id for update of c;
    -- The lock may have been waited for: the wake is read behind it.
    select * into v_n from wake_notifications n where n.service_id = p_service_id and n.wake_id = p_wake_id;
    if v_n.wake_id is null then
        return 'not_found';
    elsif v_n.resolved_at is not null or v_c.wake_id is distinct from p_wake_id then
        return 'resolved';
    elsif v_c.state = 'claimed' then
        return 'claimed';
    end if;
    if v_n.runner_wake_stream is null then
        update wake_notifications n set delivery_status = 'queued', next_attempt_at = coalesce(p_now, clock_timestamp())
         where n.wake_id = p_wake_id;
        update subscriptions s set status = 'active', last_error = null where s.consumer_id = v_c.id and s.status <> 'active';
    else
        update consumers c set told_at = coalesce(p_now, clock_timestamp()) where c.id = v_c.id;
    end if;
    perform _wake_publish(array[p_wake_id], coalesce(p_now, clock_timestamp()));
    perform audit_add(p_service_id, p_principal, 'wake.redeliver', coalesce(v_n.entity_url, v_n.consumer_id), jsonb_build_object('wake_id', p_wake_id));
    return 'redelivered';
end
$$;
comment on function rouse._wake_redeliver(integer, uuid, text, timestamptz) is 'wake_redeliver at a chosen time; null reads the clock behind the lock.';

create or replace function rouse.wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text) returns text
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
as $$
    select _wake_redeliver(p_service_id, p_wake_id, p_principal, null)
$$;
comment on function rouse.wake_redeliver(integer, uuid, text) is 'Tells an open wake again at once.';
