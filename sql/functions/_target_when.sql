-- _target_when: what moves a wake on from one target of a policy, as written
-- there or as it is by default: {"offline", "full", "failed", "unclaimedAfterMs"};
-- empty for a last target that says nothing.
create or replace function rouse._target_when(p_policy jsonb, p_index integer) returns jsonb
language sql immutable
set search_path = rouse, pg_temp
as $$
    select coalesce(nullif(p_policy -> 'targets' -> p_index -> 'when', 'null'),
                    case when p_policy -> 'targets' -> (p_index + 1) is null then '{}'::jsonb
                         else '{"offline": true, "full": true, "failed": true, "unclaimedAfterMs": 30000}' end)
$$;
comment on function rouse._target_when(jsonb, integer) is 'What moves a wake on from one target of a policy.';
