-- _membership_lock: whoever writes a service's membership streams does so alone,
-- until its transaction ends. Which streams show an entity is asked under this
-- lock: else one could find that none does while another is about to show what
-- the entity was before.
create or replace function rouse._membership_lock(p_service_id integer) returns void
language sql
set search_path = rouse, pg_temp
as $$
    select pg_advisory_xact_lock(hashtextextended('members ' || p_service_id, 0))
$$;
comment on function rouse._membership_lock(integer) is 'Lets one write the membership streams of a service.';
