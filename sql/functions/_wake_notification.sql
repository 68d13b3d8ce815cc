-- _wake_notification: the WakeNotification of a consumer's current wake, the
-- one payload every transport carries (RFC "Wake notification shape"), without
-- its tokens and its callback, which the gateway adds when it serves it.
-- Each stream's offset is the tail at wake time; ackedOffset is where unread
-- work begins.
create or replace function rouse._wake_notification(
    p_consumer rouse.consumers, p_wake_id uuid, p_epoch bigint, p_reason text
) returns jsonb
language plpgsql stable
set search_path = rouse, pg_temp
as $$
declare
    v_streams jsonb;
    v_path    text;
    v_entity  rouse.entities;
    v_result  jsonb;
begin
    select jsonb_agg(jsonb_build_object('path', '/' || s.path, 'offset', _offset(s.tail),
                                        'ackedOffset', _offset(cs.acked)) order by s.path), min(s.path)
      into v_streams, v_path
      from consumer_streams cs
      join streams s on s.id = cs.stream_id
     where cs.consumer_id = p_consumer.id and s.path is not null;
    v_result := jsonb_build_object(
        'consumerId', p_consumer.name,
        'epoch', p_epoch,
        'wakeId', p_wake_id,
        'streamPath', '/' || v_path,
        'streams', coalesce(v_streams, '[]'),
        'triggeredBy', jsonb_build_array('/' || v_path),
        'triggerEvent', p_reason);
    if p_consumer.entity_url is not null then
        select * into v_entity from entities e
         where e.service_id = p_consumer.service_id and e.url = p_consumer.entity_url;
        v_result := v_result || jsonb_build_object(
            'entity', jsonb_build_object(
                'type', v_entity.type, 'status', v_entity.status, 'url', v_entity.url,
                'streams', jsonb_build_object('main', v_entity.url || '/main', 'error', v_entity.url || '/error'),
                'tags', v_entity.tags, 'spawnArgs', v_entity.spawn_args, 'createdBy', v_entity.created_by)
                || case when v_entity.sandbox is null then '{}' else jsonb_build_object('sandbox', v_entity.sandbox) end);
    end if;
    return v_result;
end
$$;
comment on function rouse._wake_notification(rouse.consumers, uuid, bigint, text) is 'The redacted notification of a wake.';
