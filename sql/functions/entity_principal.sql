-- entity_principal: makes the entity that stands for a principal, with its
-- stream, mutex and dispatch state as every entity has them; true when it is
-- new. It belongs to the principal and has no dispatch target. p_path is its
-- stream's path: the url with its escapes read, as requests are.
create or replace function rouse.entity_principal(p_service_id integer, p_url text, p_path text, p_kind text, p_id text) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_now      timestamptz := clock_timestamp();
    v_iso      text := to_char(v_now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
    v_stream   bigint;
    v_consumer bigint;
    v_tail     bigint;
begin
    if exists (select from entities e where e.service_id = p_service_id and e.url = p_url) then
        return false;
    end if;
    insert into streams (service_id, path, kind, owner, content_type, is_json, created_at)
    values (p_service_id, p_path, 'entity', p_url, 'application/json', true, v_now)
    on conflict (service_id, path) do nothing
    returning id into v_stream;
    if not found then
        return false; -- made by somebody else meanwhile
    end if;
    insert into consumers (service_id, name, kind, entity_url, created_at)
    values (p_service_id, 'e_' || left(encode(sha256(convert_to(p_service_id || '/' || p_url, 'UTF8')), 'hex'), 32), 'entity', p_url, v_now)
    returning id into v_consumer;
    update streams s set consumer_id = v_consumer where s.id = v_stream;
    perform _subscription_discover(p_service_id, v_stream, p_path, 'entity', p_url, 0);
    perform _notice(v_stream, 0, 8);
    v_tail := _stream_push(v_stream,
        '{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":'
        || json_build_object('entity_type', 'principal', 'timestamp', v_iso, 'args', json_build_object('kind', p_kind, 'id', p_id)) || '}', false);
    insert into consumer_streams (consumer_id, stream_id, acked) values (v_consumer, v_stream, v_tail);
    insert into entities (service_id, url, type, status, tags, created_by, consumer_id, created_at, updated_at)
    values (p_service_id, p_url, 'principal', 'idle', jsonb_build_object('principal_kind', p_kind, 'principal_id', p_id), p_url, v_consumer, v_now, v_now);
    insert into entity_dispatch_state (service_id, entity_url, updated_at) values (p_service_id, p_url, v_now);
    return true;
end
$$;
comment on function rouse.entity_principal(integer, text, text, text, text) is 'Makes the entity of a principal.';
