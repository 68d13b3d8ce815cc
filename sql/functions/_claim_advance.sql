-- _claim_advance: moves the cursor of a locked consumer. p_acks is an array of
-- {"path": …, "position": …}; all are applied or none. A position below the
-- cursor or beyond the tail is refused; beyond the tail only after a look under
-- the stream's row lock, since the caller may have read a position that this
-- snapshot does not show yet. Without p_wait no lock is waited for: that look
-- then answers busy, and a locked stream keeps its pending flag, which is only
-- the scan's hint. Outcomes: ok, invalid_offset, unknown_stream, busy.
create or replace function rouse._claim_advance(
    p_consumer rouse.consumers, p_acks jsonb, p_wait boolean, out outcome text, out acked jsonb
)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_paths     text[] := '{}';
    v_positions bigint[] := '{}';
    v_ids       bigint[] := '{}';
    v_clear     boolean[] := '{}';
    v_ack       jsonb;
    v_path      text;
    v_position  bigint;
    v_tail      bigint;
    v_s         record;
begin
    outcome := 'ok';
    for v_ack in select jsonb_array_elements(p_acks) loop
        v_path := ltrim(v_ack ->> 'path', '/');
        v_position := (v_ack ->> 'position')::bigint;
        select s.id, s.tail, s.actionable, s.pending, cs.acked into v_s
          from streams s join consumer_streams cs on cs.consumer_id = p_consumer.id and cs.stream_id = s.id
         where s.service_id = p_consumer.service_id and s.path = v_path;
        if not found then
            outcome := 'unknown_stream';
            return;
        end if;
        v_tail := v_s.tail;
        if v_position > v_tail then
            if p_wait then
                select s.tail into v_tail from streams s where s.id = v_s.id for no key update;
            else
                select s.tail into v_tail from streams s where s.id = v_s.id for no key update skip locked;
                if not found then
                    outcome := 'busy';
                    return;
                end if;
            end if;
        end if;
        if v_position > v_tail or v_position < v_s.acked then
            outcome := 'invalid_offset';
            return;
        end if;
        v_ids := v_ids || v_s.id;
        v_paths := v_paths || v_path;
        v_positions := v_positions || v_position;
        v_clear := v_clear || (v_s.pending and v_s.actionable <= v_position);
    end loop;
    acked := '[]';
    for i in 1 .. cardinality(v_ids) loop
        update consumer_streams cs set acked = v_positions[i]
         where cs.consumer_id = p_consumer.id and cs.stream_id = v_ids[i] and cs.acked < v_positions[i];
        if v_clear[i] and p_wait then
            update streams s set pending = false where s.id = v_ids[i] and s.pending and s.actionable <= v_positions[i];
        elsif v_clear[i] then
            perform 1 from streams s where s.id = v_ids[i] for no key update skip locked;
            if found then
                update streams s set pending = false where s.id = v_ids[i] and s.pending and s.actionable <= v_positions[i];
            end if;
        end if;
        acked := acked || jsonb_build_object('path', '/' || v_paths[i], 'offset', _offset(v_positions[i]));
    end loop;
end
$$;
comment on function rouse._claim_advance(rouse.consumers, jsonb, boolean) is 'Moves the cursor of a locked consumer.';
