-- membership_check: compares one membership stream with the entities there are:
-- the one that was compared longest ago, or never, if that is more than
-- p_older_ms ago. Grants and their expiry leave no word, so this is what brings
-- them in. At most p_limit entities a call.
-- Outcomes: more (call again) | checked | none (nothing to compare now) | empty
-- (nor ever: there is no membership stream).
create or replace function rouse.membership_check(p_older_ms integer, p_limit integer) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    m      memberships%rowtype;
    v_now  timestamptz := clock_timestamp();
    v_url  text;
    v_done integer := 0;
begin
    select * into m from memberships k
     where k.checked_at is null or k.checked_at < v_now - make_interval(secs => p_older_ms / 1000.0)
     order by k.checked_at nulls first, k.id limit 1 for update skip locked;
    if not found then
        return case when exists (select from memberships) then 'none' else 'empty' end;
    end if;
    for v_url in
        -- By the tags alone: any other index would be walked from end to end.
        select e.url from entities e where e.tags @> m.tags and e.service_id + 0 = m.service_id
        union
        select x.entity_url from membership_members x where x.membership_id = m.id
    loop
        if _membership_show(m, v_url, v_now) then
            v_done := v_done + 1;
            if v_done >= p_limit then
                return 'more';
            end if;
        end if;
    end loop;
    update memberships k set checked_at = v_now where k.id = m.id;
    return 'checked';
end
$$;
comment on function rouse.membership_check(integer, integer) is 'Compares a membership stream with the entities there are.';
