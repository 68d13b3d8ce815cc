-- _observer_put: registers a cursor over a source for an entity and returns its
-- id. It begins at the source's tail, or, when there is no source yet, at its
-- start once there is (observe_attach). The same registration again keeps the
-- cursor where it is, so nothing between the two is missed. Takes the source's
-- row lock, under which alone streams.watched may be set. A source that is
-- closed tells nothing more: only a timeout is still waited for (null is
-- returned when there is none).
create or replace function rouse._observer_put(
    p_service_id integer, p_kind text, p_subscriber text, p_path text, p_url text, p_principal text, p_trusted boolean,
    p_condition text, p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text, p_now timestamptz
) returns bigint
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_stream bigint;
    v_tail   bigint;
    v_closed boolean;
    v_id     bigint;
begin
    select o.id into v_id from observers o
     where o.subscriber_url = p_subscriber and o.service_id = p_service_id and o.source_path = p_path and o.kind = p_kind
       and o.condition = p_condition and o.debounce_ms = p_debounce_ms and o.timeout_ms = p_timeout_ms
       and o.manifest_key is not distinct from p_manifest_key;
    if found then
        return v_id;
    end if;
    perform 1 from streams s where s.path = p_path and s.service_id = p_service_id for no key update;
    select s.id, s.tail, s.closed_at is not null into v_stream, v_tail, v_closed
      from streams s where s.path = p_path and s.service_id = p_service_id and s.deleted_at is null;
    if v_closed and p_timeout_ms = 0 then
        return null;
    end if;
    update streams s set watched = s.watched | 2 where s.id = v_stream and s.watched & 2 = 0;
    insert into observers (service_id, stream_id, kind, subscriber_url, acked, source_path, source_url, principal, trusted,
            condition, debounce_ms, timeout_ms, include_response, manifest_key, due_at, created_at)
    values (p_service_id, v_stream, p_kind, p_subscriber, coalesce(v_tail, 0), p_path, p_url, p_principal, p_trusted,
            p_condition, p_debounce_ms, p_timeout_ms, p_include_response, p_manifest_key,
            case when p_timeout_ms > 0 then p_now + make_interval(secs => p_timeout_ms / 1000.0) end, p_now)
    on conflict (subscriber_url, source_path, kind, md5(condition), debounce_ms, timeout_ms, one_shot, (coalesce(manifest_key, '')), service_id)
    do update set include_response = excluded.include_response
    returning id into v_id;
    return v_id;
end
$$;
comment on function rouse._observer_put is 'Registers a cursor over a source for an entity; the same registration again changes nothing.';
