-- _entity_finish_stopping: an entity that was asked to stop while it ran is
-- stopped once its claim ends. Returns whether it was. The caller holds the
-- consumer's row lock and the consumer is idle.
create or replace function rouse._entity_finish_stopping(p_consumer rouse.consumers, p_now timestamptz) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_stream bigint;
    v_tail   bigint;
begin
    if p_consumer.entity_url is null then
        return false;
    end if;
    update entities e set status = 'stopped', updated_at = p_now
     where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url and e.status = 'stopping';
    if not found then
        return false;
    end if;
    perform _consumer_stop(p_consumer.id, p_now);
    update streams s set closed_at = p_now, pending = false
     where s.consumer_id = p_consumer.id and s.kind = 'entity' and s.closed_at is null
    returning s.id, s.tail into v_stream, v_tail;
    if found then
        perform _notice(v_stream, v_tail, 2);
    end if;
    return true;
end
$$;
comment on function rouse._entity_finish_stopping(rouse.consumers, timestamptz) is 'Completes a requested stop when the claim ends.';
