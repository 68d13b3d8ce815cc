-- _entity_close: completes a requested stop once the claim has ended: nothing
-- is granted any more and the main stream is closed, which its observers are
-- marked for. The caller holds the consumer's row lock.
create or replace function rouse._entity_close(p_consumer rouse.consumers, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_stream bigint;
    v_tail   bigint;
    v_seen   integer;
begin
    perform _consumer_stop(p_consumer.id, p_now);
    update streams s set closed_at = p_now, pending = false
     where s.service_id = p_consumer.service_id and s.path = substr(p_consumer.entity_url, 2) || '/main' and s.closed_at is null
    returning s.id, s.tail, s.watched & 2 into v_stream, v_tail, v_seen;
    if found then
        if v_seen <> 0 then
            perform _stream_ended(array[v_stream]);
        end if;
        perform _notice(v_stream, v_tail, 2 + 16 * v_seen);
    end if;
end
$$;
comment on function rouse._entity_close(rouse.consumers, timestamptz) is 'Completes a requested stop when the claim ends.';
