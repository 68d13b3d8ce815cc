-- shape_lapsed: whether a grant to the principal, or to its kind, has come to
-- its end since p_since by the mere passing of time: the log does not tell of
-- that, and a shape that holds rows for its sake must be fetched anew.
create or replace function rouse.shape_lapsed(p_service_id integer, p_principal text, p_since timestamptz) returns boolean
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    return exists (
        select from entity_effective_permissions p
         where p.subject_value = any (array[p_principal, _principal_kind(p_principal)]) and p.service_id = p_service_id
           and p.expires_at > p_since and p.expires_at <= v_now
        union all
        select from entity_type_grants g
         where g.subject_value = any (array[p_principal, _principal_kind(p_principal)]) and g.service_id = p_service_id
           and g.expires_at > p_since and g.expires_at <= v_now);
end
$$;
comment on function rouse.shape_lapsed(integer, text, timestamptz) is 'Whether time has ended a grant that a shape may build on.';
