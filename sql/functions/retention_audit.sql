-- _retention_audit, retention_audit: removes audit rows older than p_age_ms, the
-- oldest up to p_limit. more says that there may be more to do now.
create or replace function rouse._retention_audit(p_limit integer, p_age_ms bigint, p_now timestamptz)
returns table (deleted integer, more boolean)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_to bigint;
begin
    -- Ids follow time, give or take a transaction: what is not old stops the look, and is not passed over for what is.
    select max(a.id) into v_to
      from (select a.id, bool_and(a.at < p_now - p_age_ms * interval '1 ms') over (order by a.id) as old
              from (select a.id, a.at from audit_log a order by a.id limit p_limit) a) a
     where a.old;
    delete from audit_log a where a.id <= v_to;
    get diagnostics deleted = row_count;
    more := deleted >= p_limit;
    return next;
end
$$;
comment on function rouse._retention_audit(integer, bigint, timestamptz) is 'retention_audit at a chosen time.';

create or replace function rouse.retention_audit(p_limit integer, p_age_ms bigint)
returns table (deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_audit(p_limit, p_age_ms, clock_timestamp())
$$;
comment on function rouse.retention_audit(integer, bigint) is 'Removes the oldest audit rows past an age.';
