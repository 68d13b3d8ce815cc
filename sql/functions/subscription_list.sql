-- subscription_list: the subscriptions of a service in id order after p_after, at
-- most p_limit, of one owner or, with null, of all. What they watch is
-- subscription_get's to say.
create or replace function rouse.subscription_list(p_service integer, p_owner text, p_after text, p_limit integer)
returns table (consumer_id bigint, consumer_name text, id text, type text, pattern text, wake_stream text, webhook_url text,
               description text, lease_ttl_ms integer, mount text, owner text, system boolean, status text, last_error text,
               created_at timestamptz, state text, epoch bigint, wake_id text, holder text, lease_ms bigint, pending boolean, streams jsonb)
language sql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select g.* from (select s.id from subscriptions s
                      where s.id > p_after and s.service_id = p_service and (p_owner is null or s.owner = p_owner)
                      order by s.id limit p_limit) s
     cross join lateral subscription_get(p_service, s.id, 0) g
     order by s.id
$$;
comment on function rouse.subscription_list(integer, text, text, integer) is 'The subscriptions of a service.';
