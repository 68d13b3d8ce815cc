-- _retention_adopt, retention_adopt: one step of giving the main streams of
-- entities whose type has limits their row in stream_retention: looks at up to
-- p_limit streams for one type, those that came since the last time. A stream
-- younger than five minutes is looked at again: one with a lower id may come
-- after it.
create or replace function rouse._retention_adopt(p_limit integer, p_now timestamptz)
returns table (seen integer, adopted integer, more boolean)
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
    v_now  timestamptz := coalesce(p_now, clock_timestamp());
    t      type_retention%rowtype;
    v_seen integer;
    v_n    integer;
    v_to   bigint;
begin
    seen := 0; adopted := 0; more := false;
    for t in select * from type_retention y order by y.entity_type, y.service_id for update skip locked loop
        select count(*), max(s.id) filter (where s.created_at < v_now - interval '5 minutes') into v_seen, v_to
          from (select s.id, s.created_at from streams s where s.id > t.walked order by s.id limit p_limit) s;
        continue when v_seen = 0;
        insert into stream_retention (stream_id, entity_type, updated_at)
        select s.id, t.entity_type, v_now
          from (select s.id, s.kind, s.service_id, s.consumer_id from streams s where s.id > t.walked order by s.id limit p_limit) s
         cross join lateral (select c.entity_url from consumers c where c.id = s.consumer_id limit 1) c
         cross join lateral (select e.type from entities e where e.url = c.entity_url and e.service_id = s.service_id limit 1) e
         where s.kind = 'entity' and s.service_id = t.service_id and e.type = t.entity_type
        on conflict on constraint stream_retention_pkey do update set entity_type = excluded.entity_type
         where stream_retention.entity_type is distinct from excluded.entity_type;
        get diagnostics v_n = row_count;
        adopted := adopted + v_n;
        seen := seen + v_seen;
        update type_retention y set walked = v_to where y.entity_type = t.entity_type and y.service_id = t.service_id and v_to > y.walked;
        more := more or v_seen = p_limit and v_to is not null;
        exit when seen >= p_limit;
    end loop;
    return next;
end
$$;
comment on function rouse._retention_adopt(integer, timestamptz) is 'retention_adopt at a chosen time.';

create or replace function rouse.retention_adopt(p_limit integer)
returns table (seen integer, adopted integer, more boolean)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
as $$
    select * from _retention_adopt(p_limit, null)
$$;
comment on function rouse.retention_adopt(integer) is 'One step of giving entities'' main streams the limits of their type.';
