-- _target_next: the first target of a policy from p_from on that is there and is
-- not passed over for being offline or full, at p_now; null when there is none.
create or replace function rouse._target_next(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamptz) returns integer
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_when  jsonb;
    v_state text;
begin
    for i in p_from .. jsonb_array_length(p_policy -> 'targets') - 1 loop
        v_when := _target_when(p_policy, i);
        select s.state into v_state from _target_state(p_service_id, p_policy -> 'targets' -> i, p_now) s;
        if v_state = 'ok' or v_state <> 'gone' and not coalesce((v_when ->> v_state)::boolean, false) then
            return i;
        end if;
    end loop;
    return null;
end
$$;
comment on function rouse._target_next(integer, jsonb, integer, timestamptz) is 'The first target of a policy that would take a wake.';
