-- _retention_claims, retention_claims: one step of the walk that removes claims
-- that ended longer ago than p_age_ms: looks at up to p_limit, in the order of
-- their key, a whole walk once every p_period_ms. What a holder of such a claim
-- still says is answered as before: whether it holds is in consumers.
create or replace function rouse._retention_claims(p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamptz)
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
    v_at   jsonb;
    v_text text;
begin
    seen := 0; deleted := 0; more := false;
    select w into v_text from _retention_walk('claims', p_period_ms, p_now) w;
    if not found then
        return next;
        return;
    end if;
    v_at := coalesce(nullif(v_text, ''), '["", 0, 0]')::jsonb;
    with page as materialized (
        select c.consumer_id, c.epoch, c.service_id,
               c.status <> 'active' and coalesce(c.released_at, c.updated_at) < p_now - p_age_ms * interval '1 ms' as over
          from consumer_claims c
         where (c.consumer_id, c.epoch, c.service_id) > (v_at ->> 0, (v_at ->> 1)::bigint, (v_at ->> 2)::integer)
         order by c.consumer_id, c.epoch, c.service_id limit p_limit
    ), gone as (
        delete from consumer_claims c using page p
         where p.over and c.consumer_id = any (array[p.consumer_id]) and c.epoch = p.epoch and c.service_id = p.service_id
        returning 1
    )
    select (select count(*) from page), (select count(*) from gone),
           (select jsonb_build_array(p.consumer_id, p.epoch, p.service_id) from page p order by p.consumer_id desc, p.epoch desc, p.service_id desc limit 1)
      into seen, deleted, v_at;
    more := seen = p_limit;
    perform _retention_walked('claims', case when more then v_at::text end, p_now);
    return next;
end
$$;
comment on function rouse._retention_claims(integer, bigint, bigint, timestamptz) is 'retention_claims at a chosen time.';

create or replace function rouse.retention_claims(p_limit integer, p_age_ms bigint, p_period_ms bigint)
returns table (seen integer, deleted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_claims(p_limit, p_age_ms, p_period_ms, clock_timestamp())
$$;
comment on function rouse.retention_claims(integer, bigint, bigint) is 'One step of removing claims that ended long ago.';
