-- entity_error_stream: makes the entity's error stream (RFC streams.error) at
-- its first write; calling it again is harmless. It belongs to the entity's
-- mutex and owner. Outcomes: created, exists, not_found, path_taken.
create or replace function rouse.entity_error_stream(p_service_id integer, p_url text)
returns table (outcome text, stream_id bigint)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_entity entities;
    v_id     bigint;
    v_kind   text;
begin
    select s.id, s.kind into v_id, v_kind from streams s where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/error';
    if found then
        return query select case when v_kind = 'error' then 'exists' else 'path_taken' end, v_id;
        return;
    end if;
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return query select 'not_found', null::bigint;
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
comment on function rouse.entity_error_stream(integer, text) is 'Makes an entity''s error stream at its first write.';
