-- entity_tag_put: sets (p_value) or removes (null) one tag, and tells it on
-- the entity's stream as a bookkeeping row that wakes nobody, so that a holder
-- that tags its own entity does not wake itself. p_event is that row, told as an
-- update instead of an insert if the entity had such a tag.
-- Outcomes: ok, unchanged, not_found, not_running, too_many (at most 64 an
-- entity, since each of its wakes carries them).
create or replace function rouse.entity_tag_put(
    p_service_id integer, p_url text, p_principal text, p_key text, p_value text, p_event text
) returns table (outcome text, txid bigint, entity rouse.entities)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_row    entities;
    v_stream bigint;
    v_had    boolean;
    v_now    timestamptz;
begin
    -- Lock order: consumer, stream, entity.
    perform 1 from consumers c
      where c.id = (select e.consumer_id from entities e where e.service_id = p_service_id and e.url = p_url) for update;
    select s.id into v_stream from streams s
     where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/main' and s.kind = 'entity'
       for no key update;
    select * into v_row from entities e where e.service_id = p_service_id and e.url = p_url for no key update;
    if not found then
        return query select 'not_found', null::bigint, null::entities;
        return;
    elsif v_row.status in ('stopped', 'killed') then
        return query select 'not_running', null::bigint, v_row;
        return;
    elsif (v_row.tags ->> p_key) is not distinct from p_value then
        -- Whoever awaits the txid finds it by the entity's row.
        update entities e set updated_at = clock_timestamp() where e.service_id = p_service_id and e.url = p_url returning * into v_row;
        return query select 'unchanged', _txid(), v_row;
        return;
    end if;
    v_had := v_row.tags ? p_key;
    if p_value is not null and not v_had and (select count(*) from jsonb_object_keys(v_row.tags)) >= 64 then
        return query select 'too_many', null::bigint, v_row;
        return;
    end if;
    v_now := clock_timestamp();
    update entities e
       set tags = case when p_value is null then e.tags - p_key else e.tags || jsonb_build_object(p_key, p_value) end,
           updated_at = v_now
     where e.service_id = p_service_id and e.url = p_url
    returning * into v_row;
    perform _stream_push(v_stream, case when v_had then regexp_replace(p_event, '^\{"headers":\{"operation":"insert"', '{"headers":{"operation":"update"')
                                        else p_event end, false);
    perform audit_add(p_service_id, p_principal, case when p_value is null then 'entity.tag_delete' else 'entity.tag_put' end,
        p_url, jsonb_build_object('key', p_key));
    return query select 'ok', _txid(), v_row;
end
$$;
comment on function rouse.entity_tag_put(integer, text, text, text, text, text) is 'Sets or removes one tag of an entity.';
