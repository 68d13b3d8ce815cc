-- observe_may: whether a caller may have an entity woken by a source; see
-- observe_register for the outcomes. p_checked: its rights on the subscriber, and
-- on the source if that is an entity, have been found sufficient already.
-- Changes nothing.
create or replace function rouse.observe_may(
    p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_checked boolean default false
) returns text
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_status text;
    v_path   text := _observe_source(p_service_id, p_source);
begin
    select e.status into v_status from entities e where e.url = p_subscriber and e.service_id = p_service_id;
    if not found then
        return 'not_found';
    elsif not p_checked and not p_trusted and not exists (select from entity_allowed(p_service_id, p_principal, 'write', array[p_subscriber])) then
        return 'forbidden';
    elsif v_status in ('stopped', 'killed') then
        return 'not_running';
    elsif not (p_checked and exists (select from streams s where s.path = v_path and s.service_id = p_service_id and s.kind = 'entity'))
      and not coalesce(_observe_readable(p_service_id, p_principal, p_trusted, v_path), true) then
        return 'source_forbidden';
    end if;
    return 'ok';
end
$$;
comment on function rouse.observe_may is 'Whether a caller may have an entity woken by a source.';
