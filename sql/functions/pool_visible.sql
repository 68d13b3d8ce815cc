-- pool_visible: which of some pools a principal may see: those it owns, and those
-- that a runner of its own is in or invited to.
create or replace function rouse.pool_visible(p_service_id integer, p_principal text, p_ids text[]) returns setof text
language sql stable
set search_path = rouse, pg_temp
set enable_seqscan = off
as $$
    select w.id from worker_pools w
     where w.id = any (p_ids) and w.service_id = p_service_id
       and (w.owner_principal = p_principal
            or exists (select from worker_pool_members m
                        where m.owner_principal = p_principal and m.pool_id = w.id and m.service_id = w.service_id))
$$;
comment on function rouse.pool_visible(integer, text, text[]) is 'Which pools a principal may see.';
