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
    c_piece   constant integer := 1048576;
    v_length  integer := octet_length(p_bytes);
    v_outcome text;
    v_stream  bigint;
begin
    -- Who may not, and where it is over, is told before what the id is taken by.
    select m.refusal into v_outcome from _attachment_main(p_service_id, p_url, p_principal) m;
    if v_outcome is not null then
        return v_outcome;
    end if;
    select b.outcome, b.stream_id into v_outcome, v_stream from attachment_begin(p_service_id, p_url, p_id, p_content_type, v_length) b;
    if v_outcome <> 'begun' then
        return v_outcome;
    end if;
    perform attachment_piece(v_stream, least(n * c_piece::bigint, v_length), substring(p_bytes from (n - 1) * c_piece + 1 for c_piece))
       from generate_series(1, (v_length + c_piece - 1) / c_piece) n;
    return attachment_end(p_service_id, p_url, p_principal, p_by, p_id, v_stream, v_length, p_manifest, p_event);
end
$$;
comment on function rouse.attachment_put(integer, text, text, text, text, text, bytea, jsonb, text) is 'Attaches a file to an entity.';
