-- attachment_end: gives the file that attachment_begin and attachment_piece have
-- stored in this transaction its place at the entity, as attachment_put does: a
-- row to find it by, and p_event, the manifest row, on the entity's stream.
-- Unless it answers created, the caller rolls back. A null principal may
-- everything. Outcomes: created, not_found, forbidden, not_running.
create or replace function rouse.attachment_end(
    p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_stream_id bigint, p_length bigint, p_manifest jsonb, p_event text
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_entity entities;
    v_main   streams;
begin
    select * into v_main from streams s
     where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/main' and s.kind = 'entity' for no key update;
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        return 'not_found';
    elsif not (p_principal is null or v_entity.created_by = p_principal
               or _entity_may(p_service_id, p_url, p_principal, 'write', clock_timestamp())) then
        return 'forbidden';
    elsif v_main.closed_at is not null or v_entity.status in ('stopping', 'stopped', 'killed') then
        return 'not_running';
    end if;
    insert into entity_attachments (service_id, entity_url, id, stream_id, manifest, created_at)
    values (p_service_id, p_url, p_id, p_stream_id, p_manifest, clock_timestamp());
    perform _notice(p_stream_id, p_length, 10);
    perform _stream_push(v_main.id, p_event, false);
    perform audit_add(p_service_id, p_by, 'entity.attach', p_url, jsonb_build_object('id', p_id, 'bytes', p_length));
    return 'created';
end
$$;
comment on function rouse.attachment_end(integer, text, text, text, text, bigint, bigint, jsonb, text) is 'Gives a stored file its place at its entity.';
