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
    v_refusal text;
    v_main    bigint;
begin
    select m.refusal, m.main_id into v_refusal, v_main from _attachment_main(p_service_id, p_url, p_principal) m;
    if v_refusal is not null then
        return v_refusal;
    end if;
    insert into entity_attachments (service_id, entity_url, id, stream_id, manifest, created_at)
    values (p_service_id, p_url, p_id, p_stream_id, p_manifest, clock_timestamp());
    perform _notice(p_stream_id, p_length, 10);
    perform _stream_push(v_main, p_event, false);
    perform audit_add(p_service_id, p_by, 'entity.attach', p_url, jsonb_build_object('id', p_id, 'bytes', p_length));
    return 'created';
end
$$;
comment on function rouse.attachment_end(integer, text, text, text, text, bigint, bigint, jsonb, text) is 'Gives a stored file its place at its entity.';
