-- _claim_moved: whether the claim of a locked consumer has got ahead: whether it
-- has acked anything, or for an entity whether its cursor is not where the wake
-- found it. p_streams: the streams that the call itself acks. A function of its
-- own, so that an end opens these tables only where it does not know already.
create or replace function rouse._claim_moved(c rouse.consumers, p_streams bigint[]) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
begin
    if c.entity_url is null then
        return coalesce(cardinality(p_streams), 0) > 0
            or exists (select from consumer_claims k where k.consumer_id = c.name and k.epoch = c.epoch and k.service_id = c.service_id
                                                       and k.acked_streams is not null);
    end if;
    return coalesce((select max(_offset(cs.acked)) from consumer_streams cs where cs.consumer_id = c.id)
                    > (select n.notification_public #>> '{streams,0,ackedOffset}' from wake_notifications n where n.wake_id = c.wake_id), false);
end
$$;
comment on function rouse._claim_moved(rouse.consumers, bigint[]) is 'Whether a claim has got ahead.';
