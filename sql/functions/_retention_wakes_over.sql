-- _retention_wakes_over: removes, of the up to p_limit wakes that follow p_after
-- in the order of their key, those that were resolved before p_before, with
-- their delivery attempts, and returns where the look ended.
create or replace function rouse._retention_wakes_over(p_after text, p_limit integer, p_before timestamptz, out seen integer, out deleted integer, out at text)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
begin
    with page as materialized (
        select n.wake_id, n.service_id, n.resolved_at < p_before as over
          from wake_notifications n
         where n.wake_id > coalesce(nullif(p_after, ''), '00000000-0000-0000-0000-000000000000')::uuid
         order by n.wake_id limit p_limit
    ), attempts as (
        delete from delivery_attempts d using page p where p.over and d.wake_id = any (array[p.wake_id]) and d.service_id = p.service_id
    ), gone as (
        delete from wake_notifications n using page p where p.over and n.wake_id = any (array[p.wake_id])
        returning 1
    )
    select (select count(*) from page), (select count(*) from gone), (select p.wake_id from page p order by p.wake_id desc limit 1)
      into seen, deleted, at;
end
$$;
comment on function rouse._retention_wakes_over(text, integer, timestamptz) is 'Removes some of the wakes that were resolved before a time.';
