-- observe_manifest: makes sure that what an entity writes into its manifest is
-- read. Called before the first such row is appended: the cursor begins at the
-- tail. Outcomes: ok | not_found.
create or replace function rouse.observe_manifest(p_service_id integer, p_url text) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_by text;
begin
    select e.created_by into v_by from entities e where e.url = p_url and e.service_id = p_service_id;
    if not found then
        return 'not_found';
    end if;
    perform _observer_put(p_service_id, 'manifest', p_url, _observe_source(p_service_id, p_url), p_url, v_by, _principal_trusted(v_by), '', 0, 0, true, null, clock_timestamp());
    return 'ok';
end
$$;
comment on function rouse.observe_manifest(integer, text) is 'Makes sure that an entity''s manifest rows are read.';
