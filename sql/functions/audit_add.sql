-- audit_add: one line of who changed what in the control plane, in the
-- transaction of the change. The detail must hold no secret. Where the change
-- came from is added as "from" if the transaction's setting rouse.origin says.
create or replace function rouse.audit_add(
    p_service_id integer, p_principal text, p_action text, p_resource text, p_detail jsonb
) returns void
language sql
set search_path = rouse, pg_temp
as $$
    insert into audit_log (service_id, principal, action, resource, detail)
    values (p_service_id, p_principal, p_action, p_resource,
            coalesce(p_detail, '{}') || case when nullif(current_setting('rouse.origin', true), '') is null then '{}'
                                             else jsonb_build_object('from', current_setting('rouse.origin', true)::jsonb) end)
$$;
comment on function rouse.audit_add(integer, text, text, text, jsonb) is 'Writes one audit row in the caller''s transaction.';
