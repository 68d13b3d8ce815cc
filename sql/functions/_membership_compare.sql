-- _membership_compare: compares a membership stream with the entities there are,
-- brings at most p_limit of them up to date, and says whether there were any: else
-- the stream is marked as compared. What differs is found without a lock and
-- looked at again under it.
create or replace function rouse._membership_compare(m rouse.memberships, p_limit integer) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_now  timestamptz := clock_timestamp();
    v_urls text[];
begin
    v_urls := array(
        -- By the tags alone: any other index would be walked from end to end.
        (select e.url from entities e
          where e.tags @> m.tags and e.service_id + 0 = m.service_id
            and (select x.digest from membership_members x where x.membership_id = m.id and x.entity_url = e.url) is distinct from
                case when m.trusted or e.created_by = m.principal or _entity_may(m.service_id, e.url, m.principal, 'read', v_now)
                     then md5(_membership_row(e)::text) end
          limit p_limit)
        union all
        (select x.entity_url from membership_members x
          where x.membership_id = m.id
            and not exists (select from entities e where e.url = x.entity_url and e.service_id = m.service_id and e.tags @> m.tags)
          limit p_limit));
    if v_urls = '{}' then
        update memberships k set checked_at = v_now where k.id = m.id;
        return false;
    end if;
    perform _membership_lock(m.service_id);
    select * into m from memberships k where k.id = m.id for update;
    perform _membership_show(m, u, clock_timestamp()) from unnest(v_urls) u;
    return true;
end
$$;
comment on function rouse._membership_compare(rouse.memberships, integer) is 'Brings a membership stream nearer to the entities there are.';
