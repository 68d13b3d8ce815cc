-- _claim_find: reads the calls of a batch, finds their consumers and locks them,
-- without p_wait those that nobody else has locked, with it all, in id order. A
-- runner's acquire that names no consumer comes back as op seek.
create or replace function rouse._claim_find(p_ops jsonb, p_wait boolean) returns rouse.claim_op[]
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_ops claim_op[];
begin
    select array_agg(row(o.ord, case when f.id is null and o.op = 'acquire' and o.runner is not null and coalesce(o.path, o.consumer, o.wake::text) is null
                                     then 'seek' else o.op end,
                         o.service, f.id, o.consumer, o.wake, o.epoch, o.holder, o.runner, o.claim_id,
                         coalesce(o.trusted, false), coalesce(o.proved, false), o.acks, o.error,
                         f.id is not null and l.id is null and not p_wait)::claim_op order by o.ord)
      into v_ops
      from rows from (jsonb_to_recordset(p_ops) as (op text, service integer, id bigint, path text, consumer text, wake uuid, epoch bigint,
                      holder text, runner text, claim_id text, trusted boolean, proved boolean, acks jsonb, error text))
           with ordinality as o (op, service, id, path, consumer, wake, epoch, holder, runner, claim_id, trusted, proved, acks, error, ord)
     cross join lateral (select case
           when o.id is not null then o.id
           when o.path is not null then (select s.consumer_id from streams s where s.service_id = o.service and s.path = ltrim(o.path, '/'))
           when o.consumer is not null then (select c.id from consumers c where c.service_id = o.service and c.name = o.consumer)
           else (select c.id from consumers c where c.service_id = o.service and c.name = (
                     select n.consumer_id from wake_notifications n where n.service_id = o.service and n.wake_id = o.wake)) end as id
           -- Keeps the planner from looking once for each place the id is used in.
           offset 0) f
      left join lateral (select c.id from consumers c where c.id = f.id and not p_wait for update skip locked) l on true;
    if p_wait then
        perform 1 from consumers c where c.id = any (array(select o.id from unnest(v_ops) o)) order by c.id for update;
    end if;
    return coalesce(v_ops, '{}');
end
$$;
comment on function rouse._claim_find(jsonb, boolean) is 'Reads a batch of mutex calls, finds and locks their consumers.';
