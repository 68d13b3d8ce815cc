-- _entity_signal: the decision of entity_signal at a chosen time; the caller
-- holds the consumer's and the stream's row locks.
create or replace function rouse._entity_signal(
    p_entity rouse.entities, p_consumer rouse.consumers, p_stream_id bigint, p_principal text, p_signal text,
    p_key text, p_reason text, p_payload jsonb, p_now timestamptz
) returns table (outcome text, txid bigint, previous_state text, new_state text, created_at timestamptz)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_t    record;
    v_iso  text := to_char(p_now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
    v_tail bigint;
begin
    if p_entity.status in ('stopped', 'killed') then
        return query select 'terminal', null::bigint, p_entity.status::text, p_entity.status::text, null::timestamptz;
        return;
    end if;
    v_t := _entity_transition(p_signal, p_entity.status, p_consumer.state = 'claimed' and p_consumer.lease_expires_at > p_now);

    -- An ended entity's signal is history, not work; any other is for the app.
    v_tail := _stream_push(p_stream_id,
        '{"headers":{"operation":"insert","timestamp":' || to_json(v_iso) || '},"type":"signal","key":' || to_json(p_key)
        || ',"value":' || (jsonb_strip_nulls(jsonb_build_object(
            'signal', p_signal, 'status', case when v_t.handled then 'handled' else 'unhandled' end,
            'sender', p_principal, 'timestamp', v_iso, 'reason', p_reason,
            'handled_at', case when v_t.handled then v_iso end, 'handled_by', case when v_t.handled then 'server' end,
            'outcome', case when v_t.handled then case when v_t.new_status = p_entity.status then 'ignored' else 'transitioned' end end,
            'previous_state', p_entity.status, 'new_state', v_t.new_status))
           || case when p_payload is null then '{}' else jsonb_build_object('payload', p_payload) end)::text
        || '}', not v_t.ends);

    -- Also where the status stays: whoever awaits the answer's txid finds it by the entity's row.
    update entities e set status = v_t.new_status, updated_at = p_now
     where e.service_id = p_entity.service_id and e.url = p_entity.url;
    if v_t.ends then
        perform _consumer_stop(p_consumer.id, p_now);
        update streams s set closed_at = p_now where s.id = p_stream_id and s.closed_at is null;
        perform _notice(p_stream_id, coalesce(v_tail, (select s.tail from streams s where s.id = p_stream_id)), 2);
    elsif v_t.new_status = 'paused' then
        perform _consumer_pause(p_consumer.id, true, p_now);
    elsif p_entity.status = 'paused' then
        perform _consumer_pause(p_consumer.id, false, p_now);
    end if;
    perform audit_add(p_entity.service_id, p_principal, 'entity.signal', p_entity.url,
        jsonb_build_object('signal', p_signal, 'previous_state', p_entity.status, 'new_state', v_t.new_status));
    return query select 'signalled', _txid(), p_entity.status::text, v_t.new_status, p_now;
end
$$;
comment on function rouse._entity_signal(rouse.entities, rouse.consumers, bigint, text, text, text, text, jsonb, timestamptz)
    is 'Decides a signal at a chosen time, under the locks.';
