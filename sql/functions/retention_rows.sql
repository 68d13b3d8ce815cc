-- _retention_rows, retention_rows: one step of the walk p_walk (claims, wakes or
-- producers), which removes rows that have been over for p_age_ms: looks at up to
-- p_limit in the order of their key, a whole walk once every p_period_ms. more
-- says that the walk goes on now.
create or replace function rouse._retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamptz)
returns table (seen integer, deleted integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_before timestamptz := p_now - p_age_ms * interval '1 ms';
    v_at     text;
    v_cut    boolean := false;
begin
    seen := 0; deleted := 0; more := false;
    select w into v_at from _retention_walk(p_walk, p_period_ms, p_now) w;
    if not found then
        return next;
        return;
    end if;
    case p_walk
        when 'claims' then
            select x.seen, x.deleted, x.at into seen, deleted, v_at from _retention_claims_over(v_at, p_limit, v_before) x;
        when 'wakes' then
            select x.seen, x.deleted, x.at into seen, deleted, v_at from _retention_wakes_over(v_at, p_limit, v_before) x;
        when 'producers' then
            select x.seen, x.deleted, x.at, x.cut into seen, deleted, v_at, v_cut from _retention_producers_idle(v_at, p_limit, v_before, p_now) x;
    end case;
    more := v_cut or seen >= p_limit;
    perform _retention_walked(p_walk, case when more then v_at end, p_now);
    return next;
end
$$;
comment on function rouse._retention_rows(text, integer, bigint, bigint, timestamptz) is 'retention_rows at a chosen time.';

create or replace function rouse.retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint)
returns table (seen integer, deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_rows(p_walk, p_limit, p_age_ms, p_period_ms, clock_timestamp())
$$;
comment on function rouse.retention_rows(text, integer, bigint, bigint) is 'One step of removing rows that have been over for long.';
