-- manifest_apply: carries out what an entity has written into its manifest
-- between p_from and p_to, and moves the cursor, in one transaction. p_effects is
-- an array with one element a key, the last state of each:
--   key      the manifest's key
--   at       where its row ends in the entity's stream: what was appended to a
--            source after it is told, although the row is read only now
--   wake     {source, condition, debounce, timeout, include} or absent
--   cron     {expression, timezone} of the wake's source, or absent
--   link     the path of the shared state it uses, or absent
--   members  {ref, tags} of the memberships it observes, or absent
--   send     {entity, message, at, manifest, producer} or absent
-- What is absent is taken back. On behalf of the entity's creator: what that one
-- may not read is not observed, what it may not write is not linked. Waits for a
-- source's row, a second at most.
-- Outcomes: applied | gone | stale | busy.
create or replace function rouse.manifest_apply(p_id bigint, p_from bigint, p_to bigint, p_effects jsonb) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    o      observers%rowtype;
    v_by   text;
    v_any  boolean;
    v_now  timestamptz;
    v_keep bigint;
    v_kept bigint[] := '{}';
    v_gone bigint[];
    v_age  integer;
    v_path text;
    w      jsonb;
    e      jsonb;
begin
    select * into o from observers b where b.id = p_id for update skip locked;
    if not found then
        return case when exists (select from observers b where b.id = p_id) then 'busy' else 'stale' end;
    elsif o.acked <> p_from then
        return 'stale';
    end if;
    select x.created_by into v_by from entities x
     where x.url = o.subscriber_url and x.service_id = o.service_id and x.status not in ('stopped', 'killed');
    if not found then
        with gone as (
            delete from observers b where b.subscriber_url = o.subscriber_url and b.service_id = o.service_id returning b.stream_id
        )
        select array_agg(g.stream_id) into v_gone from gone g;
        delete from scheduled_tasks t where t.owner_url = o.subscriber_url and t.service_id = o.service_id;
        perform _observer_gone(v_gone);
        return 'gone';
    end if;
    v_any := _principal_trusted(v_by);
    for e in select value from jsonb_array_elements(p_effects) loop
        v_now := clock_timestamp();
        if e ? 'members' then
            perform membership_ensure(o.service_id, v_by, v_any, e -> 'members' ->> 'ref', e -> 'members' -> 'tags');
        end if;
        w := e -> 'wake';
        v_keep := null;
        if w is not null then
            v_path := _observe_source(o.service_id, w ->> 'source');
            if coalesce(_observe_readable(o.service_id, v_by, v_any, v_path), true) then
                if e ? 'cron' then
                    perform _cron_ensure(o.service_id, v_path, e -> 'cron' ->> 'expression', e -> 'cron' ->> 'timezone');
                end if;
                v_keep := _observer_put(o.service_id, 'wake', o.subscriber_url, v_path, w ->> 'source', v_by, v_any, w ->> 'condition',
                    (w ->> 'debounce')::integer, (w ->> 'timeout')::integer, (w ->> 'include')::boolean, e ->> 'key', v_now);
                -- A cursor that has just begun goes back to the row that asked for it.
                select age(x.xmin) into v_age from messages x where x.stream_id = o.stream_id and x.position = (e ->> 'at')::bigint;
                update observers b
                   set acked = k.acked, behind = k.acked < b.acked
                  from observers n
                 cross join lateral (select coalesce((select x.position from messages x
                                                       where x.stream_id = n.stream_id and x.position <= n.acked and age(x.xmin) >= v_age
                                                       order by x.position desc limit 1),
                                                     (select coalesce(s.fork_at, 0) from streams s where s.id = n.stream_id)) as acked) k
                 where n.id = v_keep and n.created_at = v_now and n.stream_id is not null and v_age is not null and b.id = n.id;
            end if;
        end if;
        v_kept := v_kept || coalesce(v_keep, 0);

        delete from shared_state_links l
         where l.entity_url = o.subscriber_url and l.manifest_key = e ->> 'key' and l.service_id = o.service_id
           and l.path is distinct from e ->> 'link';
        if e ? 'link' then
            perform _shared_state_link(o.service_id, e ->> 'link', o.subscriber_url, e ->> 'key', v_by, v_any);
        end if;

        if e ? 'send' then
            insert into scheduled_tasks (service_id, kind, due_at, entity_url, message, principal, trusted, owner_url, manifest_key, manifest, producer_id)
            values (o.service_id, 'delayed_send', (e -> 'send' ->> 'at')::timestamptz, e -> 'send' ->> 'entity', e -> 'send' ->> 'message',
                    v_by, v_any, o.subscriber_url, e ->> 'key', e -> 'send' ->> 'manifest', e -> 'send' ->> 'producer')
            on conflict (owner_url, manifest_key, service_id) where owner_url is not null
            do update set due_at = excluded.due_at, entity_url = excluded.entity_url, message = excluded.message,
                          principal = excluded.principal, manifest = excluded.manifest, producer_id = excluded.producer_id;
        else
            delete from scheduled_tasks t
             where t.owner_url = o.subscriber_url and t.service_id = o.service_id and t.manifest_key = e ->> 'key';
        end if;
    end loop;
    -- Last, since nothing is waited for any more: an append to a source that is locked here may have to mark these.
    with gone as (
        delete from observers b
         where b.subscriber_url = o.subscriber_url and b.service_id = o.service_id and b.kind = 'wake'
           and b.manifest_key = any (array(select x ->> 'key' from jsonb_array_elements(p_effects) x)) and b.id <> all (v_kept)
        returning b.stream_id
    )
    select array_agg(g.stream_id) into v_gone from gone g;
    update observers b set acked = p_to where b.id = o.id;
    perform _observer_moved(o.id, o.stream_id, p_to);
    if v_gone is not null then
        perform _observer_gone(v_gone);
    end if;
    return 'applied';
end
$$;
comment on function rouse.manifest_apply(bigint, bigint, bigint, jsonb) is 'Carries out what an entity has written into its manifest.';
