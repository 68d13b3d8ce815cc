-- _observe_readable: whether a principal may be told what happens on a stream:
-- true | false, or null while there is no such stream, which is asked again when
-- there is. Streams of the gateway that hold secrets or files are never sources.
create or replace function rouse._observe_readable(p_service_id integer, p_principal text, p_trusted boolean, p_path text) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
as $$
declare
    s streams%rowtype;
begin
    select * into s from streams t where t.path = p_path and t.service_id = p_service_id and t.deleted_at is null;
    if not found then
        return null;
    end if;
    return case s.kind
        when 'app' then true
        when 'cron' then true
        when 'entity' then p_trusted or exists (select from entity_allowed(p_service_id, p_principal, 'read',
            array[(select c.entity_url from consumers c where c.id = s.consumer_id)]))
        when 'members' then p_trusted or s.owner = p_principal
        when 'shared' then p_trusted or _shared_state_may(p_service_id, p_principal, 'read', p_path)
        else false end;
end
$$;
comment on function rouse._observe_readable(integer, text, boolean, text) is 'Whether a principal may observe a stream.';
