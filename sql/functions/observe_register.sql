-- observe_register: an entity asks to be woken by what happens on a source. The
-- caller must be able to write the subscriber and to read the source, now or
-- when it comes to exist. A source below /_cron/ comes with its expression and
-- timezone, and is made. p_checked: see observe_may.
-- Outcomes: ok | not_found (no such subscriber) | forbidden (the subscriber) |
-- not_running | source_forbidden.
create or replace function rouse.observe_register(
    p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_condition text,
    p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text,
    p_expression text default null, p_timezone text default null, p_checked boolean default false
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_status  text;
    v_path    text := _observe_source(p_service_id, p_source);
    v_now     timestamptz;
    v_id      bigint;
begin
    v_status := observe_may(p_service_id, p_principal, p_trusted, p_subscriber, p_source, p_checked);
    if v_status <> 'ok' then
        return v_status;
    end if;
    if p_expression is not null then
        perform _cron_ensure(p_service_id, v_path, p_expression, p_timezone);
    end if;
    -- Whoever let the caller read what ownership and grants do not cannot be asked
    -- again when the source speaks.
    v_now := clock_timestamp();
    v_id := _observer_put(p_service_id, 'wake', p_subscriber, v_path, p_source, p_principal,
        p_trusted or p_checked and not coalesce(_observe_readable(p_service_id, p_principal, p_trusted, v_path), true), p_condition,
        p_debounce_ms, p_timeout_ms, p_include_response, p_manifest_key, v_now);
    -- The same registration again, as clients make at each of their starts, changes nothing.
    if exists (select from observers o where o.id = v_id and o.created_at = v_now) then
        perform audit_add(p_service_id, p_principal, 'wake.register', p_subscriber, jsonb_build_object('source', p_source));
    end if;
    return 'ok';
end
$$;
comment on function rouse.observe_register is 'Registers what an entity is woken by.';
