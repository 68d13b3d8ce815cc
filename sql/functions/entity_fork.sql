-- entity_fork: forks entities in one transaction: for each an entity of its own
-- with its own mutex, whose stream begins with the source's (up to a position,
-- and perhaps a part of the append behind it) and goes on with rows that say
-- what is different, its cursor behind all of that. Attachments and shared
-- states are forked with it.
--
-- Entities come parents first, the root of what is forked first of all: source
-- and new urls, new parents, new arguments, where the source was read to
-- (p_tails; null: as it was once, so it may be at work), where it is cut
-- (p_at, and what is kept of the next append: p_prefix, p_counts, p_stamps),
-- and whether its manifest rows are to be read (p_observe). Rows, attachments
-- and shared states (paths) name their entity by its place, from 1. p_whole:
-- the whole tree is meant. p_wake_*: what the parent is woken by; the caller has
-- made sure that it may be. A null p_principal may everything; p_by owns what is
-- made.
--
-- Nothing is made unless every source stands still: outcomes forked (a row for
-- each entity, in order), in_progress (somebody else changes the tree), moved
-- (read again), active and not_running (detail: which), forbidden,
-- parent_not_found, parent_forbidden, parent_not_running, runner_not_found,
-- runner_forbidden, pool_not_found, pool_forbidden, duplicate, path_taken.
create or replace function rouse.entity_fork(
    p_service_id integer, p_principal text, p_by text, p_parent text, p_whole boolean,
    p_sources text[], p_targets text[], p_parents text[], p_args text[], p_tails bigint[], p_at bigint[],
    p_prefix bytea[], p_counts integer[], p_stamps text[], p_observe boolean[], p_tags jsonb,
    p_row_of integer[], p_rows text[], p_attached_to integer[], p_attached text[],
    p_shared_by integer[], p_shared text[], p_shared_as text[],
    p_wake_condition text, p_wake_debounce_ms integer, p_wake_timeout_ms integer, p_wake_response boolean, p_wake_key text,
    p_message text
) returns table (outcome text, detail text, entity rouse.entities)
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_root     text := p_sources[1];
    v_sources  bigint[];
    v_refusal  text;
    v_source   entities;
    v_from     streams;
    v_path     text;
    v_new      bigint;
    v_consumer bigint;
    v_tail     bigint;
    v_row      text;
    v_runner   record;
    v_now      timestamptz;
    r          record;
begin
    -- The tree: nothing is spawned or forked in it meanwhile. A source of a fork has no parent, so it is its tree's root.
    if not pg_try_advisory_xact_lock(hashtextextended('tree ' || p_service_id || ' ' || v_root, 0)) then
        return query select 'in_progress', null::text, null::entities;
        return;
    end if;
    if p_parent is not null then
        select f.refusal into v_refusal from _entity_parent(p_service_id, p_parent, p_principal) f;
        if v_refusal is not null then
            return query select v_refusal, null::text, null::entities;
            return;
        end if;
    end if;

    -- Lock order: consumers by id, streams by id. What is read afterwards stands still.
    perform 1 from consumers c
      where c.id = any (array(select e.consumer_id from entities e where e.url = any (p_sources) and e.service_id = p_service_id))
      order by c.id for update;
    select array_agg(_entity_main(p_service_id, u.url) order by u.n) into v_sources from unnest(p_sources) with ordinality u (url, n);
    perform 1 from streams s where s.id = any (v_sources) order by s.id for no key update;
    v_now := clock_timestamp();
    for r in
        select u.n, u.url, u.tail as want, e.status, s.tail, s.path, e.created_by
          from unnest(p_sources, p_tails) with ordinality u (url, tail, n)
          left join lateral (select * from entities e where e.url = u.url and e.service_id = p_service_id limit 1) e on true
          left join lateral (select * from streams s where s.id = v_sources[u.n] limit 1) s on true
         order by u.n
    loop
        if r.status is null or r.path is null then
            outcome := 'moved';
        elsif not (p_principal is null or r.created_by = p_principal or _entity_may(p_service_id, r.url, p_principal, 'fork', v_now)) then
            outcome := 'forbidden';
        elsif r.status in ('stopped', 'killed') then
            outcome := 'not_running';
        elsif r.want is not null and r.status not in ('idle', 'paused') then
            outcome := 'active';
        elsif r.want <> r.tail then
            outcome := 'moved';
        end if;
        if outcome is not null then
            detail := r.url;
            return next;
            return;
        end if;
    end loop;
    if p_whole and exists (select from entities e where e.parent = any (p_sources) and e.service_id = p_service_id and e.url <> all (p_sources)) then
        return query select 'moved', v_root, null::entities;
        return;
    end if;
    for v_runner in
        select t ->> 'runnerId' as id, q.owner_principal
          from unnest(p_sources) u (url)
         cross join lateral (select e.dispatch_policy from entities e where e.url = u.url and e.service_id = p_service_id limit 1) e
         cross join lateral jsonb_array_elements(coalesce(e.dispatch_policy -> 'targets', '[]')) t
          left join lateral (select * from runners q where q.service_id = p_service_id and q.id = t ->> 'runnerId' limit 1) q on true
         where t ->> 'type' = 'runner'
    loop
        if v_runner.owner_principal is null then
            return query select 'runner_not_found', v_runner.id, null::entities;
            return;
        elsif p_principal is not null and v_runner.owner_principal <> p_principal then
            return query select 'runner_forbidden', v_runner.id, null::entities;
            return;
        end if;
    end loop;
    for v_runner in
        select p.refusal, t ->> 'workerPoolId' as id
          from unnest(p_sources) u (url)
         cross join lateral (select e.dispatch_policy from entities e where e.url = u.url and e.service_id = p_service_id limit 1) e
         cross join lateral jsonb_array_elements(coalesce(e.dispatch_policy -> 'targets', '[]')) t
         cross join lateral (select _targets_refusal(p_service_id, jsonb_build_object('targets', jsonb_build_array(t)), p_principal, p_principal is null) as refusal) p
         where t ->> 'type' = 'worker-pool'
    loop
        if v_runner.refusal is not null then
            return query select v_runner.refusal, v_runner.id, null::entities;
            return;
        end if;
    end loop;
    -- The root's name may have been asked for by others; the rest have names made up for them.
    if exists (select from (select substr(t, 2) || x as path from unnest(p_targets) t, unnest(array['/main', '/error']) x
                             union all
                            select substr(p_targets[x.n], 2) || '/attachments/' || x.id from unnest(p_attached_to, p_attached) x (n, id)) k
                cross join lateral (select from streams s where s.service_id = p_service_id and s.path = k.path limit 1) s) then
        return query select case when exists (select from entities e where e.service_id = p_service_id and e.url = any (p_targets))
                                 then 'duplicate' else 'path_taken' end, null::text, null::entities;
        return;
    end if;

    for r in
        select * from unnest(p_sources, p_targets, p_parents, p_args, p_at, p_prefix, p_counts, p_stamps, p_observe)
            with ordinality u (source, target, parent, args, at, prefix, count, stamps, observe, n)
         order by n
    loop
        select * into v_source from entities e where e.service_id = p_service_id and e.url = r.source;
        select * into v_from from streams s where s.id = v_sources[r.n];
        v_path := substr(r.target, 2);
        v_tail := r.at + coalesce(octet_length(r.prefix), 0);
        insert into streams (service_id, path, kind, owner, content_type, is_json, tail, head, forked_from, fork_at, created_at)
        values (p_service_id, v_path || '/main', 'entity', p_by, 'application/json', true, v_tail, least(v_from.head, r.at), v_from.id, r.at, v_now)
        on conflict (service_id, path) do nothing
        returning id into v_new;
        if not found and r.n = 1 then
            return query select 'duplicate', null::text, null::entities;
            return;
        elsif not found then
            raise exception using errcode = 'RS003', message = 'the name of a fork was taken meanwhile';
        end if;
        if r.prefix is not null then
            insert into messages (stream_id, position, payload, count, stamps) values (v_new, v_tail, r.prefix, r.count, r.stamps::integer[]);
        end if;
        insert into consumers (service_id, name, kind, entity_url, lease_ttl_ms, wake_ttl_ms, created_at)
        select p_service_id, 'e_' || left(encode(sha256(convert_to(p_service_id || '/' || r.target, 'UTF8')), 'hex'), 32),
               'entity', r.target, c.lease_ttl_ms, c.wake_ttl_ms, v_now
          from consumers c where c.id = v_source.consumer_id
        returning id into v_consumer;
        update streams s set consumer_id = v_consumer where s.id = v_new;
        perform _notice(v_new, v_tail, 8);
        perform _subscription_discover(p_service_id, v_new, v_path || '/main', 'entity', p_by, v_tail);
        insert into consumer_streams (consumer_id, stream_id, acked) values (v_consumer, v_new, v_tail);
        insert into entities (service_id, url, type, status, dispatch_policy, tags, spawn_args, sandbox, parent, created_by,
                type_revision, inbox_schemas, state_schemas, consumer_id, created_at, updated_at)
        values (p_service_id, r.target, v_source.type, 'idle', v_source.dispatch_policy,
                v_source.tags || case when r.n = 1 then coalesce(p_tags, '{}') else '{}' end, r.args::jsonb, v_source.sandbox, r.parent, p_by,
                v_source.type_revision, v_source.inbox_schemas, v_source.state_schemas, v_consumer, v_now, v_now);
        insert into entity_dispatch_state (service_id, entity_url, updated_at) values (p_service_id, r.target, v_now);
        if r.parent is not null then
            perform _grant_inherit(p_service_id, r.target, r.parent, p_by, v_now);
        end if;

        insert into streams (service_id, path, kind, owner, content_type, is_json, tail, closed_at, forked_from, fork_at, created_at)
        select p_service_id, v_path || '/attachments/' || a.id, 'attachment', p_by, s.content_type, s.is_json, s.tail, v_now, s.id, s.tail, v_now
          from unnest(p_attached_to, p_attached) x (n, id)
          join entity_attachments a on a.entity_url = r.source and a.id = x.id and a.service_id = p_service_id
          join streams s on s.id = any (array[a.stream_id])
         where x.n = r.n;
        insert into entity_attachments (service_id, entity_url, id, stream_id, manifest, created_at)
        select p_service_id, r.target, a.id, s.id, a.manifest || jsonb_build_object('streamPath', r.target || '/attachments/' || a.id), v_now
          from unnest(p_attached_to, p_attached) x (n, id)
          join entity_attachments a on a.entity_url = r.source and a.id = x.id and a.service_id = p_service_id
          join streams s on s.service_id = p_service_id and s.path = any (array[v_path || '/attachments/' || a.id])
         where x.n = r.n;
        -- A shared state of several forked entities is forked once.
        insert into streams (service_id, path, kind, owner, content_type, is_json, tail, head, ttl_seconds, expires_at, forked_from, fork_at, created_at)
        select p_service_id, x.into_path, s.kind, p_by, s.content_type, s.is_json, s.tail, s.head, s.ttl_seconds, s.expires_at, s.id, s.tail, v_now
          from unnest(p_shared_by, p_shared, p_shared_as) x (n, path, into_path)
         cross join lateral (select s.* from streams s where s.service_id = p_service_id and s.path = x.path and s.deleted_at is null for key share) s
         where x.n = r.n and exists (select from shared_state_links l where l.path = x.path and l.entity_url = r.source and l.service_id = p_service_id)
        on conflict (service_id, path) do nothing;
        insert into shared_state_links (service_id, path, entity_url)
        select p_service_id, x.into_path, r.target
          from unnest(p_shared_by, p_shared, p_shared_as) x (n, path, into_path)
         where x.n = r.n and exists (select from shared_state_links l where l.path = x.path and l.entity_url = r.source and l.service_id = p_service_id)
        on conflict do nothing;

        if r.observe then
            perform observe_manifest(p_service_id, r.target);
        end if;
        for v_row in select x.row from unnest(p_row_of, p_rows) with ordinality x (n, row, place) where x.n = r.n order by x.place loop
            v_tail := _stream_push(v_new, v_row, false);
        end loop;
        update consumer_streams cs set acked = v_tail where cs.consumer_id = v_consumer and cs.stream_id = v_new;
        perform audit_add(p_service_id, p_by, 'entity.fork', r.target, jsonb_build_object('source', r.source));
    end loop;

    if p_wake_condition is not null then
        perform observe_register(p_service_id, coalesce(p_principal, p_by), p_principal is null, p_parent, p_targets[1], p_wake_condition,
            p_wake_debounce_ms, p_wake_timeout_ms, p_wake_response, p_wake_key, p_checked => true);
    end if;
    if p_message is not null then
        perform _stream_push((select cs.stream_id from consumer_streams cs join entities e on e.consumer_id = cs.consumer_id
                               where e.service_id = p_service_id and e.url = p_targets[1] and cs.link_type = 'own'), p_message, true);
    end if;
    return query select 'forked', null::text, e.made
      from unnest(p_targets) with ordinality u (url, n)
     cross join lateral (select x as made from entities x where x.url = u.url and x.service_id = p_service_id limit 1) e
     order by u.n;
end
$$;
comment on function rouse.entity_fork is 'Forks a tree of entities in one transaction.';
