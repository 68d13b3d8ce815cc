-- t100_entity_changed: leaves word for the membership streams that an entity was
-- spawned, got other tags, or, if one of them shows it, another status. In the
-- transaction of the change, so that no crash comes between. While nobody
-- observes memberships it looks at one row and writes none. The log tells every
-- gateway, since the one that made the change may not know that anybody observes.
create or replace function rouse.t100_entity_changed() returns trigger
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    if new.member or (select s.memberships from services s where s.id = new.service_id) then
        insert into membership_changes (service_id, entity_url) values (new.service_id, new.url);
        perform pg_logical_emit_message(true, 'rouse.member', '');
    end if;
    return null;
end
$$;
comment on function rouse.t100_entity_changed() is 'Tells membership streams of a new or changed entity.';
