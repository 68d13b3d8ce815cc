-- retention_get: what is kept of a stream: where it begins and ends, how many
-- bytes lie between, its limits (source: stream, type, none), and whether
-- messages below its head are still being deleted. No row when there is no such
-- stream.
create or replace function rouse.retention_get(p_service_id integer, p_path text)
returns table (kind text, owner text, entity_type text, head bigint, tail bigint, source text,
               max_age_ms bigint, max_bytes bigint, max_count bigint, sweeping boolean)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select s.kind, s.owner, x.entity_type, s.head, s.tail,
           case when x.own then 'stream' when t.found then 'type' else 'none' end,
           case when x.own then x.max_age_ms else t.max_age_ms end,
           case when x.own then x.max_bytes else t.max_bytes end,
           case when x.own then x.max_count else t.max_count end,
           exists (select from stream_trims d where d.stream_id = s.id)
      from streams s
      left join lateral (select * from stream_retention y where y.stream_id = s.id limit 1) x on true
      left join lateral (select true as found, y.* from type_retention y
                          where y.entity_type = x.entity_type and y.service_id = s.service_id limit 1) t on true
     where s.service_id = p_service_id and s.path = p_path and s.deleted_at is null and (s.expires_at is null or s.expires_at > clock_timestamp());
end
$$;
comment on function rouse.retention_get(integer, text) is 'What is kept of a stream.';
