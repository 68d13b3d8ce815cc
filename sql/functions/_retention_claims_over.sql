-- _retention_claims_over: removes, of the up to p_limit claims that follow
-- p_after in the order of their key, those that ended before p_before, and
-- returns where the look ended. What a holder of such a claim still says is
-- answered as before: whether it holds is in consumers.
create or replace function rouse._retention_claims_over(p_after text, p_limit integer, p_before timestamptz, out seen integer, out deleted integer, out at text)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
declare
    v_at jsonb := coalesce(nullif(p_after, ''), '["", 0, 0]')::jsonb;
begin
    with page as materialized (
        select c.consumer_id, c.epoch, c.service_id,
               c.status <> 'active' and coalesce(c.released_at, c.updated_at) < p_before as over
          from consumer_claims c
         where (c.consumer_id, c.epoch, c.service_id) > (v_at ->> 0, (v_at ->> 1)::bigint, (v_at ->> 2)::integer)
         order by c.consumer_id, c.epoch, c.service_id limit p_limit
    ), gone as (
        delete from consumer_claims c using page p
         where p.over and c.consumer_id = any (array[p.consumer_id]) and c.epoch = p.epoch and c.service_id = p.service_id
        returning 1
    )
    select (select count(*) from page), (select count(*) from gone),
           (select jsonb_build_array(p.consumer_id, p.epoch, p.service_id)::text
              from page p order by p.consumer_id desc, p.epoch desc, p.service_id desc limit 1)
      into seen, deleted, at;
end
$$;
comment on function rouse._retention_claims_over(text, integer, timestamptz) is 'Removes some of the claims that ended before a time.';
