-- _target_choose: which target of a policy gets a wake that is minted at p_now:
-- the first from p_from on that would take it; if none would, p_from itself,
-- which it then waits for, unless that is gone and another is not.
create or replace function rouse._target_choose(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_from integer := least(p_from, jsonb_array_length(p_policy -> 'targets') - 1);
begin
    return coalesce(_target_next(p_service_id, p_policy, v_from, p_now), (
        select i from generate_series(0, jsonb_array_length(p_policy -> 'targets') - 1) i
         where (select s.state from _target_state(p_service_id, p_policy -> 'targets' -> i, p_now) s) <> 'gone'
         order by i <> v_from, i limit 1), v_from);
end
$$;
comment on function rouse._target_choose(integer, jsonb, integer, timestamptz) is 'Which target of a policy gets a wake.';
