-- _entity_move, entity_move: gives an entity another dispatch policy, at a chosen
-- time; the one it had is kept in entity_policy_history, which holds the last
-- 200 of each entity. Who made it may, and who has manage on it; the targets are
-- checked as at its spawn. Its cursor stays.
--
-- Idle: done. Told and not claimed: that wake is taken back and the next goes to
-- the new target. Held: the holder has p_deadline_ms (null: 30 s, 0: none, at
-- most 10 min) to release; no lease goes beyond that, its runner is told on its
-- wake stream ({"type": "release"}), and when its claim ends, at the latest then,
-- the next wake goes to the new target. An earlier deadline stands; moved to where
-- it goes already with a deadline that is earlier yet, the holder has until then.
-- Parked work goes on with the new policy.
-- Outcomes: moved (release_by is set while a holder has it), unchanged, not_found,
-- forbidden, not_running, and target_not_found or target_forbidden.
create or replace function rouse._entity_move(
    p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text,
    p_now timestamptz
) returns table (outcome text, txid bigint, release_by timestamptz)
language plpgsql
set search_path = rouse, pg_temp
as $$
#variable_conflict use_column
declare
    v_e       entities;
    v_c       consumers;
    v_refusal text;
    v_by      timestamptz;
    v_wake    uuid;
    v_now     timestamptz;
    v_stream  bigint;
    v_revision integer;
    v_same    boolean;
begin
    select * into v_e from entities e where e.url = p_url and e.service_id = p_service_id;
    if not found then
        return query select 'not_found', null::bigint, null::timestamptz;
        return;
    end if;
    select * into v_c from consumers c where c.id = v_e.consumer_id for update;
    if v_e.dispatch_policy -> 'targets' -> 0 is null then
        -- What nobody could be told of is looked for by the scan from now on.
        update streams s set pending = true
          from consumer_streams cs
         where cs.consumer_id = v_c.id and s.id = any (array[cs.stream_id]) and s.actionable > cs.acked and not s.pending and s.consumer_id = v_c.id;
    end if;
    select * into v_e from entities e where e.url = p_url and e.service_id = p_service_id for no key update;
    v_now := coalesce(p_now, clock_timestamp());
    if not (p_trusted or v_e.created_by = p_principal or _entity_may(p_service_id, p_url, p_principal, 'manage', v_now)) then
        return query select 'forbidden', null::bigint, null::timestamptz;
        return;
    elsif v_e.status in ('stopping', 'stopped', 'killed') then
        return query select 'not_running', null::bigint, null::timestamptz;
        return;
    end if;
    v_refusal := _targets_refusal(p_service_id, p_policy, p_principal, p_trusted);
    if v_refusal is not null then
        return query select case when v_refusal like '%not_found' then 'target_not_found' else 'target_forbidden' end, null::bigint, null::timestamptz;
        return;
    end if;
    v_by := v_now + least(greatest(coalesce(p_deadline_ms, 30000), 0), 600000) * interval '1 ms';
    v_same := v_e.dispatch_policy is not distinct from p_policy;
    if v_same and not coalesce(v_c.state = 'claimed' and v_by < v_c.release_by, false) then
        return query select 'unchanged', _txid(), v_c.release_by;
        return;
    end if;

    if not v_same then
        insert into entity_policy_history (service_id, entity_url, revision, dispatch_policy, moved_by, reason, replaced_at)
        select p_service_id, p_url, coalesce(max(h.revision), 0) + 1, v_e.dispatch_policy, p_principal, p_reason, v_now
          from entity_policy_history h where h.entity_url = p_url and h.service_id = p_service_id
        returning revision into v_revision;
        delete from entity_policy_history h where h.entity_url = p_url and h.service_id = p_service_id and h.revision <= v_revision - 200;
        update entities e set dispatch_policy = p_policy, updated_at = v_now where e.url = p_url and e.service_id = p_service_id;
        update consumers c set attempts = 0, fruitless = 0, target_index = 0 where c.id = v_c.id returning * into v_c;
    end if;
    perform audit_add(p_service_id, p_principal, 'entity.move', p_url,
        jsonb_strip_nulls(jsonb_build_object('revision', v_revision, 'reason', p_reason,
            'to', (select jsonb_agg(coalesce(t ->> 'runnerId', t ->> 'workerPoolId', t ->> 'type')) from jsonb_array_elements(p_policy -> 'targets') t))));

    if v_c.state = 'claimed' then
        v_by := least(v_c.release_by, v_by);
        update consumers c
           set release_by = v_by, lease_expires_at = least(c.lease_expires_at, v_by), due_at = least(c.due_at, v_by)
         where c.id = v_c.id
        returning * into v_c;
        update consumer_claims k set lease_expires_at = v_c.lease_expires_at, updated_at = v_now
         where k.consumer_id = v_c.name and k.epoch = v_c.epoch and k.service_id = p_service_id;
        update entity_dispatch_state d set active_lease_expires_at = v_c.lease_expires_at, updated_at = v_now
         where d.entity_url = p_url and d.service_id = p_service_id;
        if v_by <= v_now then
            -- Fenced: the claim ends as a lapsed one does, and the next wake is minted with it.
            perform _claim_apply(jsonb_build_array(jsonb_build_object('op', 'expire', 'service', p_service_id, 'id', v_c.id)), true, v_now);
        end if;
        select s.id into v_stream from runners r
          join streams s on s.path = any (array[ltrim(r.wake_stream, '/')]) and s.service_id = r.service_id
         where r.id = v_c.runner_id and r.service_id = p_service_id;
        if found and v_by <= v_now then
            -- Other wake streams are locked by now, so this one is not waited for: its reader learns from its next call, too.
            perform 1 from streams s where s.id = v_stream for no key update skip locked;
        end if;
        if found then
            perform _stream_push(v_stream, jsonb_strip_nulls(jsonb_build_object(
                'type', 'release', 'consumerId', v_c.name, 'epoch', v_c.epoch, 'wakeId', v_c.wake_id, 'entityUrl', p_url, 'streamPath', p_url || '/main',
                'releaseBy', to_char(v_by at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'reason', p_reason,
                'ts', floor(extract(epoch from v_now) * 1000)::bigint))::text, false);
        end if;
    elsif v_c.parked_at is not null then
        v_wake := _consumer_unpark(v_c, 'moved', v_now);
    else
        -- The new policy's patience begins now.
        update entity_dispatch_state d set pending_since = v_now
         where d.entity_url = p_url and d.service_id = p_service_id and d.pending_since is not null;
        v_wake := _wake_move(v_c, 0, 'moved', v_now);
    end if;
    if v_wake is not null then
        perform _wake_publish(array[v_wake], v_now);
    end if;
    return query select 'moved', _txid(), case when v_by > v_now and v_c.state = 'claimed' then v_by end;
end
$$;
comment on function rouse._entity_move(integer, text, text, boolean, jsonb, bigint, text, timestamptz) is 'entity_move at a chosen time; null reads the clock behind the locks.';

create or replace function rouse.entity_move(
    p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text
) returns table (outcome text, txid bigint, release_by timestamptz)
language sql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select * from _entity_move(p_service_id, p_url, p_principal, p_trusted, p_policy, p_deadline_ms, p_reason, null)
$$;
comment on function rouse.entity_move(integer, text, text, boolean, jsonb, bigint, text) is 'Gives an entity another dispatch policy and hands over what is held.';
