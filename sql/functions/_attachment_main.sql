-- _attachment_main: locks the stream of an entity whose attachments are to
-- change and says why a principal may not change them: not_found, forbidden,
-- not_running, or null when it may. A null principal may everything.
create or replace function rouse._attachment_main(p_service_id integer, p_url text, p_principal text, out refusal text, out main_id bigint)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_entity entities;
    v_closed boolean;
begin
    select s.id, s.closed_at is not null into main_id, v_closed
      from streams s where s.service_id = p_service_id and s.path = substr(p_url, 2) || '/main' and s.kind = 'entity' for no key update;
    select * into v_entity from entities e where e.service_id = p_service_id and e.url = p_url;
    refusal := case
        when not found then 'not_found'
        when not (p_principal is null or v_entity.created_by = p_principal
                  or _entity_may(p_service_id, p_url, p_principal, 'write', clock_timestamp())) then 'forbidden'
        when v_closed or v_entity.status in ('stopping', 'stopped', 'killed') then 'not_running' end;
end
$$;
comment on function rouse._attachment_main(integer, text, text) is 'Locks the stream of an entity whose attachments change, and says who may not change them.';
