-- _consumer_stop: no claim is granted any more (RFC "Entity stopped"). A live
-- claim ends as failed, an outstanding wake is superseded. Takes the
-- consumer's row lock; the clock in p_now must have been read after it.
create or replace function rouse._consumer_stop(p_consumer_id bigint, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_c    consumers;
    v_end  claim_verdict;
    v_room uuid[];
begin
    select * into v_c from consumers c where c.id = p_consumer_id for update;
    if not found or v_c.state = 'stopped' then
        return;
    end if;
    if v_c.state = 'claimed' then
        v_end.id := v_c.id;
        v_end.effect := 'end';
        v_end.status := 'failed';
        v_end.error := case v_c.kind when 'subscription' then 'The subscription was deleted.' else 'The entity was stopped.' end;
        v_end.pending := false;
        v_room := _claim_write(array[v_end], p_now);
    elsif v_c.state = 'waking' then
        v_c := _wake_supersede(v_c, p_now);
    end if;
    update consumers c set state = 'stopped', parked_at = null, parked_reason = null where c.id = p_consumer_id;
    if v_c.kind <> 'subscription' then
        update streams s set pending = false
         where s.id in (select cs.stream_id from consumer_streams cs where cs.consumer_id = p_consumer_id) and s.pending;
    end if;
    update entity_dispatch_state d
       set pending_source_streams = '[]', pending_reason = null, pending_since = null, updated_at = p_now
     where d.service_id = v_c.service_id and d.entity_url = v_c.entity_url;
    if v_room is not null then
        perform _wake_publish(v_room, p_now);
    end if;
end
$$;
comment on function rouse._consumer_stop(bigint, timestamptz) is 'Ends whatever is held or outstanding and refuses later claims.';
