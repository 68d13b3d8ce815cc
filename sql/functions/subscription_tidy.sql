-- subscription_tidy: one bounded step of what deleted subscriptions leave: at
-- most p_limit links of one of them. Streams that are locked are left for
-- another time. Returns whether there is more to do now.
create or replace function rouse.subscription_tidy(p_limit integer) returns boolean
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_id  bigint;
    v_ids bigint[];
begin
    select r.consumer_id into v_id from subscription_removals r order by r.consumer_id limit 1 for update skip locked;
    if not found then
        return false;
    end if;
    select array_agg(x.stream_id) into v_ids
      from (select cs.stream_id from consumer_streams cs where cs.consumer_id = v_id order by cs.stream_id limit p_limit) x;
    if v_ids is not null then
        return _subscription_unlink(v_id, v_ids) > 0;
    end if;
    delete from consumers c where c.id = v_id;
    delete from subscription_removals r where r.consumer_id = v_id;
    return true;
end
$$;
comment on function rouse.subscription_tidy(integer) is 'Removes what a deleted subscription leaves.';
