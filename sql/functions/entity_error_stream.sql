-- entity_error_stream: makes the entity's error stream (RFC streams.error) at
-- its first write, for the holder of the entity's live claim and nobody else;
-- calling it again is harmless. The stream belongs to the entity's mutex and
-- owner. Outcomes: created, exists, not_found (no such entity), guarded
-- (another entity's claim), token_stale, lease_expired, path_taken.
create or replace function rouse.entity_error_stream(p_service_id integer, p_url text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid)
returns table (outcome text, stream_id bigint)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_entity   entities;
    v_consumer consumers;
    v_id       bigint;
    v_fence    text;
begin
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return query select 'not_found', null::bigint;
        return;
    elsif v_entity.consumer_id <> p_consumer_id then
        return query select 'guarded', null::bigint;
        return;
    end if;
    perform set_config('lock_timeout', '5000', true);
    select * into v_consumer from consumers c where c.id = p_consumer_id for update;
    v_fence := _claim_fence(v_consumer, p_epoch, p_wake_id, clock_timestamp());
    if v_fence is distinct from 'ok' then
        return query select case v_fence when 'lease_expired' then 'lease_expired' else 'token_stale' end, null::bigint;
        return;
    end if;
    insert into streams (service_id, path, kind, owner, content_type, is_json, consumer_id)
    values (p_service_id, substr(p_url, 2) || '/error', 'error', v_entity.created_by, 'application/json', true, v_entity.consumer_id)
    on conflict (service_id, path) do nothing
    returning id into v_id;
    if found then
        perform _notice(v_id, 0, 8);
        return query select 'created', v_id;
        return;
    end if;
    return query select case when s.kind = 'error' then 'exists' else 'path_taken' end, s.id
      from streams s where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/error';
end
$$;
comment on function rouse.entity_error_stream(integer, text, bigint, bigint, uuid) is 'Makes an entity''s error stream at its holder''s first write.';
