-- _epochs_raise: makes the floor of p_timeline, if there is none or it p_always
-- must rise, and returns it. Whoever mints or grants meanwhile waits here. The
-- jump is more than a consumer can be granted in what a failover may lose, and
-- longer the later it is, by the milliseconds since 2026 began: of two databases
-- that go on from one state, a backup restored twice, neither grants what the
-- other may have. Epochs stay below 2^53 over thousands of jumps.
create or replace function rouse._epochs_raise(p_reason text, p_timeline integer, p_always boolean) returns bigint
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_last epoch_floors;
begin
    lock table epoch_floors in share row exclusive mode;
    select * into v_last from epoch_floors order by n desc limit 1;
    if p_always or v_last.timeline is distinct from p_timeline then
        insert into epoch_floors (n, timeline, floor, reason)
        select coalesce(v_last.n, 0) + 1, p_timeline, greatest(max(c.epoch), v_last.floor, 0) + 1000000
               + greatest(floor(extract(epoch from clock_timestamp() - timestamptz '2026-01-01 00:00:00+00') * 1000)::bigint, 0), p_reason
          from consumers c
        returning * into v_last;
    end if;
    return v_last.floor;
end
$$;
comment on function rouse._epochs_raise(text, integer, boolean) is 'Makes the floor of epochs for a timeline.';
