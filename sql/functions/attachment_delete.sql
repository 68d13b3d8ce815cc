-- attachment_delete: removes an attachment, its stream and, by p_event, its row
-- in the entity's manifest. Forks of the entity keep what they share. Outcomes:
-- deleted, not_found (no such entity), forbidden, not_running, no_attachment.
create or replace function rouse.attachment_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_event text) returns text
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
    v_stream  bigint;
begin
    select m.refusal, m.main_id into v_refusal, v_main from _attachment_main(p_service_id, p_url, p_principal) m;
    if v_refusal is not null then
        return v_refusal;
    end if;
    delete from entity_attachments a where a.entity_url = p_url and a.id = p_id and a.service_id = p_service_id returning a.stream_id into v_stream;
    if not found then
        return 'no_attachment';
    end if;
    perform 1 from streams s where s.id = v_stream for update;
    perform _stream_retire(v_stream, clock_timestamp());
    perform _stream_push(v_main, p_event, false);
    perform audit_add(p_service_id, p_by, 'entity.detach', p_url, jsonb_build_object('id', p_id));
    return 'deleted';
end
$$;
comment on function rouse.attachment_delete(integer, text, text, text, text, text) is 'Removes an attachment.';
