-- delivery_uncertain: whether an earlier attempt to deliver a wake was never
-- answered, because its gateway ended in the middle of it. For transports whose
-- receivers cannot tell a wake that is sent twice from two wakes; the others just
-- send again. Such attempts are recorded as unknown. Asked again for the same
-- attempt, it answers the same; for a later one, after a person had the wake
-- delivered again, it does not count them any more.
create or replace function rouse.delivery_uncertain(p_service_id integer, p_wake_id uuid, p_attempt integer) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_seen text := 'its gateway ended before it knew; seen by attempt ' || p_attempt;
begin
    update delivery_attempts a
       set finished_at = clock_timestamp(), outcome = 'unknown', error = v_seen
     where a.service_id = p_service_id and a.wake_id = p_wake_id and a.attempt < p_attempt and a.finished_at is null;
    return exists (select from delivery_attempts a
                    where a.service_id = p_service_id and a.wake_id = p_wake_id and a.attempt < p_attempt
                      and a.outcome = 'unknown' and a.error = v_seen);
end
$$;
comment on function rouse.delivery_uncertain(integer, uuid, integer) is 'Whether an earlier attempt to deliver a wake was never answered.';
