-- attachment_begin: makes the stream of a large file, whose bytes follow by
-- attachment_piece and whose place at its entity by attachment_end, all in one
-- transaction of the caller's: nobody sees it before. Nothing of the entity is
-- locked meanwhile. Outcomes: begun, not_found, exists (an attachment of this
-- id), path_taken.
create or replace function rouse.attachment_begin(
    p_service_id integer, p_url text, p_id text, p_content_type text, p_length bigint
) returns table (outcome text, stream_id bigint)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_owner text;
    v_now   timestamptz := clock_timestamp();
begin
    select e.created_by into v_owner from entities e where e.service_id = p_service_id and e.url = p_url;
    if not found then
        outcome := 'not_found';
        return next;
        return;
    end if;
    insert into streams (service_id, path, kind, owner, content_type, is_json, tail, closed_at, created_at)
    values (p_service_id, substr(p_url, 2) || '/attachments/' || p_id, 'attachment', v_owner, p_content_type, false, p_length, v_now, v_now)
    on conflict (service_id, path) do nothing
    returning id into stream_id;
    outcome := case when stream_id is not null then 'begun'
                    when exists (select from entity_attachments a where a.entity_url = p_url and a.id = p_id and a.service_id = p_service_id) then 'exists'
                    else 'path_taken' end;
    return next;
end
$$;
comment on function rouse.attachment_begin(integer, text, text, text, bigint) is 'Makes the stream of a large file.';
