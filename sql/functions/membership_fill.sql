-- membership_fill: brings at most p_limit entities into a membership stream that
-- has never been compared with the entities there are. Whether to call again:
-- whoever asks for a new stream finds in it what there is.
create or replace function rouse.membership_fill(p_service_id integer, p_ref text, p_limit integer) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    m memberships%rowtype;
begin
    select * into m from memberships k where k.ref = p_ref and k.service_id = p_service_id and k.checked_at is null;
    return found and _membership_compare(m, p_limit);
end
$$;
comment on function rouse.membership_fill(integer, text, integer) is 'Fills a new membership stream.';
