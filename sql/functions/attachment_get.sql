-- attachment_get: what is known of one attachment, for whoever may read its
-- entity. Outcomes: ok, not_found (no such entity), forbidden, no_attachment.
create or replace function rouse.attachment_get(p_service_id integer, p_url text, p_principal text, p_id text)
returns table (outcome text, stream_id bigint, bytes bigint, manifest jsonb)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_owner text;
begin
    select e.created_by into v_owner from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        outcome := 'not_found';
    elsif not (p_principal is null or v_owner = p_principal or _entity_may(p_service_id, p_url, p_principal, 'read', clock_timestamp())) then
        outcome := 'forbidden';
    else
        select 'ok', a.stream_id, s.tail, a.manifest into outcome, stream_id, bytes, manifest
          from entity_attachments a join streams s on s.id = a.stream_id
         where a.entity_url = p_url and a.id = p_id and a.service_id = p_service_id;
        outcome := coalesce(outcome, 'no_attachment');
    end if;
    return next;
end
$$;
comment on function rouse.attachment_get(integer, text, text, text) is 'Looks an attachment up.';
