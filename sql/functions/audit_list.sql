-- audit_list: what happened to a resource, newest first, below an id.
create or replace function rouse.audit_list(
    p_service_id integer, p_resource text, p_before bigint, p_limit integer
) returns setof rouse.audit_log
language sql stable
set search_path = rouse, pg_temp
as $$
    select a.* from audit_log a
     where a.service_id = p_service_id and a.resource = p_resource and (p_before is null or a.id < p_before)
     order by a.id desc
     limit p_limit
$$;
comment on function rouse.audit_list(integer, text, bigint, integer) is 'The audit rows of one resource, newest first.';
