-- wake_get: one wake with its delivery attempts, oldest first, for a person.
-- owner is who made its entity or registered its subscription; may says whether
-- the principal is that or has the entity's manage permission. No row when there
-- is no such wake.
create or replace function rouse.wake_get(p_service_id integer, p_wake_id uuid, p_principal text)
returns table (wake rouse.wake_notifications, owner text, may boolean, attempts jsonb)
language sql stable
set search_path = rouse, pg_temp
as $$
    select n, o.owner, o.owner = p_principal
           or n.entity_url is not null and _entity_may(n.service_id, n.entity_url, p_principal, 'manage', clock_timestamp()),
           coalesce((select jsonb_agg(jsonb_build_object('attempt', a.attempt, 'transport', a.transport, 'started_at', a.started_at, 'finished_at', a.finished_at,
                                                         'outcome', a.outcome, 'status_code', a.status_code, 'error', a.error) order by a.attempt)
                       from delivery_attempts a where a.service_id = n.service_id and a.wake_id = n.wake_id), '[]')
      from wake_notifications n
      left join lateral (
           select coalesce((select e.created_by from entities e where e.url = n.entity_url and e.service_id = n.service_id),
                           (select s.owner from consumers c join subscriptions s on s.consumer_id = c.id
                             where c.name = n.consumer_id and c.service_id = n.service_id)) as owner) o on true
     where n.wake_id = p_wake_id and n.service_id = p_service_id
$$;
comment on function rouse.wake_get(integer, uuid, text) is 'One wake with its delivery attempts.';
