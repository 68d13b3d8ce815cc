-- _entity_root: locks the tree of an entity against grants (p_shared) or against
-- grants, spawns and forks in it, until the transaction ends, and returns the
-- url of its root; null when there is no such entity. A parent is fixed at the
-- spawn, so the way up stands still. Taken before every row lock.
create or replace function rouse._entity_root(p_service_id integer, p_url text, p_shared boolean) returns text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_url    text := p_url;
    v_parent text;
    v_key    bigint;
begin
    loop
        select e.parent into v_parent from entities e where e.service_id = p_service_id and e.url = v_url;
        if not found then
            return null;
        end if;
        exit when v_parent is null;
        v_url := v_parent;
    end loop;
    v_key := hashtextextended('tree ' || p_service_id || ' ' || v_url, 0);
    if p_shared then
        perform pg_advisory_xact_lock_shared(v_key);
    else
        perform pg_advisory_xact_lock(v_key);
    end if;
    return v_url;
end
$$;
comment on function rouse._entity_root(integer, text, boolean) is 'Locks the tree of an entity and returns its root.';
