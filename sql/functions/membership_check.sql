-- membership_check: compares one membership stream with the entities there are:
-- the one that was compared longest ago, or never, if that is more than
-- p_older_ms ago. Grants and their expiry leave no word, so this is what brings
-- them in. One that nobody has asked for during 30 days and nobody observes goes,
-- with its stream. At most p_limit entities a call.
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
    m     memberships%rowtype;
    v_now timestamptz := clock_timestamp();
begin
    select * into m from memberships k
     where k.checked_at is null or k.checked_at < v_now - make_interval(secs => p_older_ms / 1000.0)
     order by k.checked_at nulls first, k.id limit 1;
    if not found then
        return case when exists (select from memberships) then 'none' else 'empty' end;
    elsif _membership_compare(m, p_limit) then
        return 'more';
    end if;
    if m.touched_at < v_now - interval '30 days' and not exists (select from observers o where o.stream_id = m.stream_id) then
        perform 1 from streams s where s.id = m.stream_id and s.watched & 1 = 0 for update;
        if found then
            perform _stream_retire(m.stream_id, v_now);
            delete from memberships k where k.id = m.id;
        end if;
    end if;
    return 'checked';
end
$$;
comment on function rouse.membership_check(integer, integer) is 'Compares a membership stream with the entities there are.';
