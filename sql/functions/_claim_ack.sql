-- _claim_ack: advances the cursor of the live claim, at a chosen time. p_acks
-- is an array of {"path": …, "position": …}; all are applied or none. A
-- position below the cursor or beyond the tail is refused: the tail is looked
-- at again under the stream's row lock before that is said, since the caller
-- may have read a position that this snapshot does not show yet.
-- Outcomes: ok, stale, lease_expired, invalid_offset, unknown_stream.
create or replace function rouse._claim_ack(
    p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_acks jsonb, p_now timestamptz
) returns rouse.claim_answer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_a       claim_answer;
    v_ack     record;
    v_tail    bigint;
    v_ids     bigint[] := '{}';
    v_streams jsonb;
begin
    v_a.consumer_id := p_consumer.id;
    v_a.consumer_name := p_consumer.name;
    v_a.entity_url := p_consumer.entity_url;
    v_a.epoch := p_consumer.epoch;
    v_a.wake_id := p_consumer.wake_id;
    v_a.outcome := _claim_fence(p_consumer, p_epoch, p_wake, p_now);
    if v_a.outcome <> 'ok' then
        return v_a;
    end if;
    v_a.lease_ms := ceil(extract(epoch from p_consumer.lease_expires_at - p_now) * 1000)::bigint;

    for v_ack in
        select a.path, max(a.position) as position, cs.stream_id, cs.acked, s.tail
          from jsonb_to_recordset(p_acks) as a (path text, position bigint)
          left join streams s on s.service_id = p_consumer.service_id and s.path = ltrim(a.path, '/')
          left join consumer_streams cs on cs.consumer_id = p_consumer.id and cs.stream_id = s.id
         group by a.path, cs.stream_id, cs.acked, s.tail
         order by cs.stream_id
    loop
        if v_ack.stream_id is null then
            v_a.outcome := 'unknown_stream';
            return v_a;
        end if;
        v_tail := v_ack.tail;
        if v_ack.position > v_tail then
            select s.tail into v_tail from streams s where s.id = v_ack.stream_id for no key update;
        end if;
        if v_ack.position > v_tail or v_ack.position < v_ack.acked then
            v_a.outcome := 'invalid_offset';
            return v_a;
        end if;
        v_ids := v_ids || v_ack.stream_id;
    end loop;
    if cardinality(v_ids) = 0 then
        return v_a;
    end if;

    update consumer_streams cs set acked = a.position
      from (select s.id, max(a.position) as position
              from jsonb_to_recordset(p_acks) as a (path text, position bigint)
              join streams s on s.service_id = p_consumer.service_id and s.path = ltrim(a.path, '/')
             group by s.id) a
     where cs.consumer_id = p_consumer.id and cs.stream_id = a.id and cs.acked < a.position;

    update streams s set pending = false
      from consumer_streams cs
     where s.id = any (v_ids) and s.pending and cs.stream_id = s.id and cs.consumer_id = p_consumer.id and s.actionable <= cs.acked;

    select jsonb_agg(jsonb_build_object('path', '/' || s.path, 'offset', _offset(cs.acked)) order by s.path) into v_streams
      from consumer_streams cs join streams s on s.id = cs.stream_id where cs.consumer_id = p_consumer.id;
    update consumer_claims k set acked_streams = v_streams, updated_at = p_now
     where k.service_id = p_consumer.service_id and k.consumer_id = p_consumer.name and k.epoch = p_epoch;
    if p_consumer.entity_url is not null and not _consumer_pending(p_consumer.id) then
        update entity_dispatch_state d
           set pending_source_streams = '[]', pending_reason = null, pending_since = null, updated_at = p_now
         where d.service_id = p_consumer.service_id and d.entity_url = p_consumer.entity_url;
    end if;
    return v_a;
end
$$;
comment on function rouse._claim_ack(rouse.consumers, bigint, uuid, jsonb, timestamptz) is 'Advances the cursor of the live claim at a chosen time.';
