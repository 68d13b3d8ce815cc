-- attachment_put: attaches a file to an entity in one transaction: its bytes as
-- a closed stream of their own, which the entity's readers may read, a row to
-- find it by, and p_event, the manifest row, on the entity's stream. The bytes
-- are kept in pieces of a megabyte, so that reading holds little. A null
-- principal may everything. Outcomes: created, not_found, forbidden,
-- not_running, exists (an attachment of this id), path_taken.
create or replace function rouse.attachment_put(
    p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_content_type text, p_bytes bytea, p_manifest jsonb, p_event text
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    c_piece  constant integer := 1048576;
    v_entity entities;
    v_main   streams;
    v_path   text := substr(p_url, 2) || '/attachments/' || p_id;
    v_length integer := octet_length(p_bytes);
    v_stream bigint;
    v_now    timestamptz;
begin
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return 'not_found';
    elsif not (p_principal is null or v_entity.created_by = p_principal
               or _entity_may(p_service_id, p_url, p_principal, 'write', clock_timestamp())) then
        return 'forbidden';
    end if;
    select * into v_main from streams s
     where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/main' and s.kind = 'entity' for no key update;
    if v_main.closed_at is not null or v_entity.status in ('stopping', 'stopped', 'killed') then
        return 'not_running';
    end if;
    v_now := clock_timestamp();
    insert into streams (service_id, path, kind, owner, content_type, is_json, tail, closed_at, created_at)
    values (p_service_id, v_path, 'attachment', v_entity.created_by, p_content_type, false, v_length, v_now, v_now)
    on conflict (service_id, path) do nothing
    returning id into v_stream;
    if not found then
        return case when exists (select from entity_attachments a where a.entity_url = p_url and a.id = p_id and a.service_id = p_service_id)
                    then 'exists' else 'path_taken' end;
    end if;
    insert into messages (stream_id, position, payload, count)
    select v_stream, least(n * c_piece::bigint, v_length), substring(p_bytes from (n - 1) * c_piece + 1 for c_piece), 1
      from generate_series(1, (v_length + c_piece - 1) / c_piece) n;
    insert into entity_attachments (service_id, entity_url, id, stream_id, manifest, created_at)
    values (p_service_id, p_url, p_id, v_stream, p_manifest, v_now);
    perform _notice(v_stream, v_length, 10);
    perform _stream_push(v_main.id, p_event, false);
    perform audit_add(p_service_id, p_by, 'entity.attach', p_url, jsonb_build_object('id', p_id, 'bytes', v_length));
    return 'created';
end
$$;
comment on function rouse.attachment_put(integer, text, text, text, text, text, bytea, jsonb, text) is 'Attaches a file to an entity.';
