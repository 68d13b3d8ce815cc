-- _route_due: when claim_reap has to look at a wake minted at p_now for a target
-- of a policy that has more to it than one target, apart from telling it again:
-- the first time at which _dispatch_judge may find something.
create or replace function rouse._route_due(
    p_service_id integer, p_entity_url text, p_policy jsonb, p_index integer, p_attempts integer, p_now timestamptz
) returns timestamptz
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_when jsonb := _target_when(p_policy, p_index);
    v_wait interval := interval '0';
begin
    if p_policy -> 'targets' -> (p_index + 1) is null then
        v_wait := make_interval(secs => least(60, power(2, least((p_attempts - 1) / jsonb_array_length(p_policy -> 'targets'), 6))));
    end if;
    return least(
        p_now + (v_when ->> 'unclaimedAfterMs')::bigint * interval '1 ms' + v_wait,
        (select greatest(coalesce(d.pending_since, p_now), d.last_released_at) + (p_policy #>> '{giveUp,afterMs}')::bigint * interval '1 ms'
           from entity_dispatch_state d where d.entity_url = p_entity_url and d.service_id = p_service_id),
        case when (v_when ->> 'offline')::boolean or (v_when ->> 'full')::boolean then
            -- One that is offline already is left as soon as another would take it.
            greatest((select s.alive_until from _target_state(p_service_id, p_policy -> 'targets' -> p_index, p_now) s), p_now + v_wait) end);
end
$$;
comment on function rouse._route_due(integer, text, jsonb, integer, integer, timestamptz) is 'When a wake of several targets is looked at first.';
