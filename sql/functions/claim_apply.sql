-- _claim_apply, claim_apply: a batch of mutex calls in one transaction, each
-- answered under its place in the batch (ord). A call (type claim_op) finds its
-- consumer by id, path, consumer (its name) or wake; where several are given
-- they must agree. An acquire with none of them takes what waits for its runner.
--
-- acquire: a wake for a runner is granted to the runner's owner only, any other
-- wake to whoever shows its claim token (proved); trusted passes both. Without
-- a wake or an epoch it takes whatever work is pending. Outcomes: granted,
-- repeated (same claim_id: the same answer again), held, stale, no_work,
-- stopped, paused, not_owner, runner_not_found, runner_disabled, runner_full,
-- runner_mismatch, wrong_wake (the wake was never this consumer's); and of a
-- wake for a worker pool, which is granted to the runner that asks, not_member,
-- pool_disabled, pool_full (runner_mismatch if no runner asks).
-- heartbeat, ack, release: (epoch, wake) must be the live claim. Outcomes: ok,
-- released, stale (another is current, or the claim has ended), lease_expired,
-- not_holder (a claim token where a taker's own is needed). A lapsed claim
-- stays lapsed, and a release ends it. Where the holder was asked to hand over,
-- release_by says until when, and no lease goes beyond it. Work that a release leaves
-- gets the next wake. A release repeated for the same (wake, epoch) answers what
-- the first one answered, but for the holder, which only the first names. A
-- refusal changes nothing else, but that a wake for which there was no room is
-- told again once there is.
-- acks: all are applied or none. Outcomes: unknown_stream (not one of the
-- consumer's); invalid_offset for a position below the cursor or beyond the
-- tail; beyond the tail only after a look under the stream's lock, since the
-- caller may have read a position that this snapshot does not show yet.
-- expire: ends a lapsed claim, for claim_reap; lease_expired, or ok.
-- Any: not_found, busy, wrong_consumer (id and name disagree).
--
-- Works on sets: all consumers are found and locked (_claim_find), the clock is
-- read, one statement fetches what the decisions need, each call is decided
-- here, and _claim_write writes for all of them. Calls of one consumer keep
-- their order: one behind a change to its consumer is decided a round later.
--
-- Without p_wait no row is waited for: a contended call answers busy and is
-- sent again alone with p_wait. Locks in order: consumers by id, pools and
-- runners (only to count their claims), streams; wakes are published last, so that wake
-- streams are locked after everything else. p_now is the chosen time of a test;
-- null reads the clock after each lock.
create or replace function rouse._claim_apply(p_ops jsonb, p_wait boolean, p_now timestamptz)
returns table (ord integer, answer rouse.claim_answer)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_bitmapscan = off
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
    v_todo     claim_op[] := _claim_find(p_ops, p_wait);
    v_seek     boolean := false;      -- nothing else is left than calls that name no consumer: one a round
    v_rest     integer[];             -- calls left for another round
    v_changed  bigint[];              -- consumers that a verdict of this round changes
    v_looked   bigint[] := '{}';      -- streams locked for a look at their tail
    v_granted  text[];                -- runners with a capacity and pools, once for each grant of this round
    v_verdicts claim_verdict[];
    v_wakes    uuid[];
    v_grant    boolean;
    v_floor    bigint;                -- claims below it are over (_epoch_floor)
    v_floored  boolean;
    v_wake     uuid;
    v_target   text;
    v_checked  boolean;
    v_now      timestamptz;
    v_got      boolean;
    v_past     record;
    v_late     claim_answer[];        -- of releases that leave work, which may be given up instead of told again
    v_late_ord integer[];
    r          record;
    c_lapsed   constant text := 'The lease ended without a release.';
begin
    while v_todo <> '{}' loop
        if v_seek then
            v_todo[1] := _claim_seek(v_todo[1], p_wait, p_now);
        end if;
        v_seek := true;
        v_rest := '{}'; v_changed := '{}'; v_granted := '{}'; v_verdicts := '{}'; v_late := '{}'; v_late_ord := '{}';
        -- _epoch_floor without the price of a call.
        select f.floor, f.timeline = ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer into v_floor, v_floored
          from epoch_floors f order by f.n desc limit 1;
        if v_floored is distinct from true then
            v_floor := _epoch_floor();
        end if;
        v_now := coalesce(p_now, clock_timestamp());
        for r in
            select m.ord, m.op, m.consumer, m.wake, m.epoch, m.holder, m.runner, m.claim_id, m.trusted, m.proved, m.error, m.busy,
                   c.id, c.service_id, c.name, c.kind, c.entity_url, c.state, c.paused, c.epoch as c_epoch, c.wake_id, c.holder as c_holder,
                   c.runner_id, c.pool_id, c.release_by, c.claim_id as c_claim_id, c.lease_expires_at, c.lease_ttl_ms * interval '1 ms' as ttl,
                   h.live, c.state = 'claimed' and not h.live as lapsed,
                   e.dispatch_policy -> 'targets' -> 0 as target, e.dispatch_policy -> 'targets' -> 1 is not null as several,
                   case e.status when 'stopping' then 'stopped' when 'running' then 'idle' else e.status end as entity_status,
                   q.owner_principal, q.admin_status, q.capacity, n.notification_public as notification,
                   a.refusal, a.streams, a.positions, a.acked,
                   -- Whether work is left once the acks are applied.
                   case when m.op = 'heartbeat' or c.state = 'waking' then null
                        when c.kind = 'subscription' then exists (
                       select from consumer_streams cs join streams s on s.id = any (array[cs.stream_id])
                        where case when cs.behind then cs.consumer_id end = c.id and cs.behind and s.path is not null
                          and s.tail > greatest(cs.acked, a.positions[array_position(a.streams, s.id)]))
                        else exists (
                       select from consumer_streams cs join streams s on s.id = any (array[cs.stream_id])
                        where cs.consumer_id = c.id and s.path is not null
                          and s.actionable > greatest(cs.acked, (select max(x.position) from unnest(a.streams, a.positions) x (stream, position)
                                                                  where x.stream = s.id))) end as pending
              from unnest(v_todo) m
              left join lateral (select * from consumers c where c.id = m.id and c.service_id = m.service and not m.busy limit 1) c on true
             cross join lateral (select c.state = 'claimed' and c.lease_expires_at > v_now and c.epoch >= v_floor as live) h
              -- The status matters to an end, the target to an acquire before any wake.
              left join lateral (select e.status, e.dispatch_policy from entities e
                                  where m.op in ('release', 'expire', 'acquire') and c.state in ('idle', 'claimed')
                                    and e.service_id = c.service_id and e.url = c.entity_url limit 1) e on true
              -- The runner that asks, or the one the grant would go to.
              left join lateral (select q.owner_principal, q.admin_status, q.capacity from runners q
                                  where q.service_id = m.service
                                    and q.id = coalesce(m.runner, case when m.op = 'acquire' then
                                                   case when c.state = 'waking' then c.runner_id else e.dispatch_policy -> 'targets' -> 0 ->> 'runnerId' end end) limit 1) q on true
              left join lateral (select n.notification_public from wake_notifications n
                                  where m.op = 'acquire' and n.wake_id = c.wake_id limit 1) n on true
              left join lateral (
                   select (array_agg(x.refusal order by x.n) filter (where x.refusal is not null))[1] as refusal,
                          -- The furthest first: a stream may be named twice.
                          array_agg(x.id order by x.position desc) as streams, array_agg(x.position order by x.position desc) as positions,
                          jsonb_agg(jsonb_build_object('path', x.path, 'offset', _offset(x.position)) order by x.n) as acked
                     from (select i.n, s.id, '/' || ltrim(i.path, '/') as path, i.position,
                                  case when cs.acked is null then 'unknown_stream'
                                       when i.position > s.tail and s.id <> all (v_looked) then 'beyond'
                                       -- Below the head: a trim by force has moved the cursor past what this holder has read.
                                       when i.position > s.tail or i.position < 0 or i.position < cs.acked and i.position >= s.head then 'invalid_offset' end as refusal
                             from rows from (jsonb_to_recordset(case when h.live then m.acks end) as (path text, position bigint)) with ordinality i (path, position, n)
                             left join lateral (select s.id, s.tail, s.head from streams s
                                                 where s.service_id = m.service and s.path = ltrim(i.path, '/') limit 1) s on true
                             left join lateral (select cs.acked from consumer_streams cs
                                                 where cs.consumer_id = m.id and cs.stream_id = s.id limit 1) cs on true) x) a on true
             order by m.ord
        loop
            if r.op = 'seek' or r.id = any (v_changed) then
                v_rest := v_rest || r.ord;
                v_seek := v_seek and r.op = 'seek';
                continue;
            end if;
            ord := r.ord;
            answer := null;
            v_grant := false;
            -- Who asks comes before what is asked for.
            if r.runner is not null and r.owner_principal is null then
                answer.outcome := 'runner_not_found';
            elsif r.runner is not null and not r.trusted and r.owner_principal is distinct from r.holder then
                answer.outcome := 'not_owner';
            elsif r.runner is not null and r.admin_status <> 'enabled' then
                answer.outcome := 'runner_disabled';
            elsif r.busy then
                answer.outcome := 'busy';
            elsif r.op = 'nothing' then
                answer.outcome := 'no_work';
            elsif r.id is null then
                answer.outcome := 'not_found';
            elsif r.name <> r.consumer then
                answer.outcome := 'wrong_consumer';
            else
                answer.consumer_id := r.id;
                answer.consumer_name := r.name;
                answer.entity_url := r.entity_url;
                answer.epoch := r.c_epoch;
            end if;

            if answer.outcome is not null then
                null;
            elsif r.op <> 'acquire' then
                if r.op = 'expire' then
                    answer.outcome := case when r.lapsed then 'lease_expired' else 'ok' end;
                elsif r.proved and r.runner_id is not null then
                    -- Everybody who reads a wake stream has its claim tokens: there only the taker's own token speaks
                    -- for the claim.
                    answer.outcome := 'not_holder';
                elsif r.c_epoch <> r.epoch or r.state <> 'claimed' or r.wake_id is distinct from r.wake then
                    answer.outcome := 'stale';
                else
                    -- By the clock as it was read last: behind the round's reading a claim may have waited, and counted.
                    answer.outcome := case when r.lapsed or r.lease_expires_at <= v_now then 'lease_expired' else coalesce(r.refusal, 'ok') end;
                end if;

                if answer.outcome = 'stale' and r.op = 'release' then
                    select c.status, c.next_wake into v_past from consumer_claims c
                     where c.consumer_id = r.name and c.epoch = r.epoch and c.service_id = r.service_id and c.wake_id = r.wake;
                    if v_past.status = 'expired' then
                        answer.outcome := 'lease_expired';
                    elsif v_past.next_wake is not null then
                        answer.outcome := 'released';
                        answer.epoch := r.epoch;
                        answer.wake_id := r.wake;
                        answer.next_wake := v_past.next_wake;
                    end if;
                elsif answer.outcome = 'lease_expired' and r.op in ('release', 'expire') then
                    v_verdicts := v_verdicts || row(r.id, 'end', null, null, null, null, null, r.pending, 'expired', c_lapsed,
                                                    r.pending and not r.paused and r.entity_status is distinct from 'stopped', r.entity_status, null)::claim_verdict;
                    v_changed := v_changed || r.id;
                elsif answer.outcome = 'beyond' or answer.outcome = 'ok' and r.kind = 'subscription' and not (r.streams <@ v_looked) then
                    -- The caller may have read a position that the snapshot does not show yet: look again under the lock.
                    -- A subscription's link is only ever written under its stream's.
                    if p_wait then
                        perform 1 from streams s where s.id = any (r.streams) order by s.id for no key update;
                    end if;
                    select bool_and(s.id is not null) into v_got from unnest(r.streams) x
                      left join lateral (select s.id from streams s where s.id = x for no key update skip locked) s on true
                     where x is not null;
                    if v_got then
                        v_looked := v_looked || r.streams;
                        v_rest := v_rest || r.ord;
                        v_changed := v_changed || r.id;
                        v_seek := false;
                        continue;
                    end if;
                    answer.outcome := 'busy';
                elsif answer.outcome = 'ok' and r.op = 'release' then
                    answer.outcome := 'released';
                    answer.wake_id := r.wake;
                    answer.holder := r.c_holder;
                    answer.entity_status := r.entity_status;
                    answer.next_wake := r.pending and not r.paused and r.entity_status is distinct from 'stopped';
                    v_verdicts := v_verdicts || row(r.id, 'end', null, null, r.streams, r.positions, r.acked, r.pending,
                                                    case when r.error is null then 'released' else 'failed' end, r.error,
                                                    answer.next_wake, r.entity_status, null)::claim_verdict;
                    v_changed := v_changed || r.id;
                elsif answer.outcome = 'ok' and r.op = 'heartbeat' then
                    answer.holder := r.c_holder;
                    answer.runner_id := r.runner_id;
                    answer.release_by := r.release_by;
                    answer.lease_ms := ceil(extract(epoch from least(r.ttl, greatest(r.lease_expires_at - v_now, least(r.ttl, r.release_by - v_now)))) * 1000);
                    v_verdicts := v_verdicts || row(r.id, 'beat', null, null, null, null, null, null, null, null, null, null, null)::claim_verdict;
                    if r.lease_expires_at < v_now + interval '1 s' then
                        v_granted := v_granted || (r.service_id || '/h/' || r.id); -- this round's clock may pass its end (_claim_over)
                    end if;
                    v_changed := v_changed || r.id;
                elsif answer.outcome = 'ok' and r.op = 'ack' then
                    answer.release_by := r.release_by;
                    answer.lease_ms := ceil(extract(epoch from least(r.ttl, r.lease_expires_at - v_now)) * 1000);
                    if r.streams is not null then
                        v_verdicts := v_verdicts || row(r.id, 'ack', null, null, r.streams, r.positions, r.acked, r.pending, null, null, null, null, null)::claim_verdict;
                        v_changed := v_changed || r.id;
                    end if;
                end if;
                if r.op in ('heartbeat', 'ack') then
                    answer.wake_id := r.wake_id;
                end if;

            else
                -- Which wake is meant: an epoch alone names the one it was minted with.
                v_wake := r.wake;
                if r.wake is null and r.epoch is not null then
                    select n.wake_id into v_wake from wake_notifications n
                     where n.consumer_id = r.name and n.epoch = r.epoch and n.service_id = r.service_id and n.entity_url is not distinct from r.entity_url;
                    if not found then
                        answer.outcome := 'stale';
                    end if;
                elsif r.wake is distinct from r.wake_id and r.wake is not null then
                    perform 1 from wake_notifications n
                      where n.wake_id = r.wake and n.service_id = r.service_id and n.consumer_id = r.name and n.epoch = coalesce(r.epoch, n.epoch);
                    if not found then
                        answer.outcome := 'wrong_wake';
                    end if;
                elsif r.epoch <> r.c_epoch then
                    answer.outcome := 'wrong_wake';
                end if;

                -- A grant looks at the runner it would go to, by whatever route it is asked for. Who may not have it is
                -- refused below, whatever state the runner is in.
                -- Which of several targets a wake that is yet to be made goes to, and whom of a pool, is seen then.
                v_target := case when r.state = 'waking' then r.runner_id when not r.several then r.target ->> 'runnerId' end;
                v_checked := v_target is not null;
                if answer.outcome is null and not r.live and r.state <> 'stopped' and v_target = coalesce(r.runner, v_target)
                   and (r.trusted or r.owner_principal is not distinct from r.holder) then
                    if r.admin_status <> 'enabled' then
                        answer.outcome := 'runner_disabled';
                    elsif r.capacity is not null then
                        answer.outcome := _claim_room(r.service_id, v_target, null, v_granted, p_wait, p_now);
                        v_now := coalesce(p_now, clock_timestamp());
                        if answer.outcome = 'runner_full' and r.state = 'waking' and coalesce(v_wake, r.wake_id) = r.wake_id then
                            v_verdicts := v_verdicts || row(r.id, 'full', null, null, null, null, null, null, null, null, null, null, null)::claim_verdict;
                        end if;
                    end if;
                end if;

                if answer.outcome is null and r.live then
                    answer.holder := r.c_holder;
                    answer.runner_id := r.runner_id;
                    answer.lease_ms := ceil(extract(epoch from least(r.ttl, r.lease_expires_at - v_now)) * 1000);
                    if v_wake <> r.wake_id then
                        answer.outcome := 'stale';
                    elsif r.claim_id = r.c_claim_id and r.holder = r.c_holder then
                        answer.outcome := 'repeated';
                        answer.wake_id := r.wake_id;
                        answer.notification := r.notification;
                        answer.stream_path := r.notification ->> 'streamPath';
                    else
                        answer.outcome := 'held';
                    end if;
                elsif answer.outcome is null and (r.lapsed or r.state = 'idle' and v_wake is null and r.pending and not r.paused) then
                    -- A lapsed claim that is met ends now; work nobody was told of gets its wake.
                    v_wakes := v_wakes || _claim_write(array[row(
                        r.id, case when r.lapsed then 'end' else 'mint' end, null, null, null, null, null, r.pending, 'expired', c_lapsed,
                        r.pending and not r.paused and r.entity_status is distinct from 'stopped', r.entity_status, null)::claim_verdict], v_now);
                    select c.state, c.epoch, c.wake_id, c.runner_id, c.pool_id, c.paused, n.notification_public, q.owner_principal, q.capacity
                      into r.state, r.c_epoch, r.wake_id, r.runner_id, r.pool_id, r.paused, r.notification, r.owner_principal, r.capacity
                      from consumers c left join wake_notifications n on n.wake_id = c.wake_id
                      left join lateral (select q.owner_principal, q.capacity from runners q
                                          where q.service_id = c.service_id and q.id = coalesce(r.runner, c.runner_id) limit 1) q on true
                     where c.id = r.id;
                    v_checked := v_checked and r.runner_id is not distinct from v_target;
                    answer.epoch := r.c_epoch;
                    v_changed := v_changed || r.id;
                end if;

                if answer.outcome is not null then
                    null;
                elsif r.state = 'stopped' then
                    answer.outcome := 'stopped';
                elsif r.paused then
                    answer.outcome := 'paused';
                elsif r.state = 'idle' then
                    answer.outcome := case when v_wake is null then 'no_work' else 'stale' end;
                elsif v_wake <> r.wake_id then
                    answer.outcome := 'stale';
                elsif (case when r.pool_id is null then r.runner <> coalesce(r.runner_id, '') else r.runner is null end) then
                    answer.outcome := 'runner_mismatch';
                elsif r.pool_id is null and not r.trusted and (case when r.runner_id is null then not r.proved else r.owner_principal is distinct from r.holder end) then
                    answer.outcome := 'not_owner';
                else
                    if r.pool_id is not null or r.runner_id is not null and not v_checked then
                        answer.outcome := _claim_room(r.service_id, coalesce(r.runner, r.runner_id), r.pool_id, v_granted, p_wait, p_now);
                        v_now := coalesce(p_now, clock_timestamp());
                        if answer.outcome in ('pool_full', 'runner_full') then
                            v_verdicts := v_verdicts || row(r.id, 'full', null, null, null, null, null, null, null, null, null, null, null)::claim_verdict;
                        end if;
                    end if;
                    v_grant := answer.outcome is null;
                end if;

                if v_grant then
                    if r.c_epoch < v_floor then
                        -- Somebody may have been granted it before the database went on from an older state of it.
                        select _wake_move(c, c.target_index, 'acquire', v_now) into v_wake from consumers c where c.id = r.id;
                        if v_wake is not null then
                            v_wakes := v_wakes || v_wake;
                        end if;
                        v_changed := v_changed || r.id;
                        answer.outcome := 'stale';
                        v_grant := false;
                    end if;
                end if;
                if v_grant then
                    answer.outcome := 'granted';
                    answer.wake_id := r.wake_id;
                    answer.holder := r.holder;
                    answer.runner_id := case when r.pool_id is null then r.runner_id else r.runner end;
                    answer.lease_ms := extract(epoch from r.ttl) * 1000;
                    answer.entity_status := case when r.entity_url is not null then 'running' end;
                    answer.notification := r.notification;
                    answer.stream_path := r.notification ->> 'streamPath';
                    v_verdicts := v_verdicts || row(r.id, 'grant', r.holder, r.claim_id, null, null, null, null, null, null, null, null, answer.runner_id)::claim_verdict;
                    v_changed := v_changed || r.id;
                    if r.capacity is not null then
                        v_granted := v_granted || (r.service_id || '/r/' || answer.runner_id);
                    end if;
                    if r.pool_id is not null then
                        v_granted := v_granted || array[r.service_id || '/p/' || r.pool_id, r.service_id || '/p/' || r.pool_id || '/' || answer.runner_id];
                    end if;
                end if;
            end if;
            if answer.next_wake and r.id = any (v_changed) then
                v_late := v_late || answer; v_late_ord := v_late_ord || r.ord;
                continue;
            end if;
            return next;
        end loop;

        v_wakes := v_wakes || _claim_write(v_verdicts, v_now);
        for i in 1 .. cardinality(v_late) loop
            answer := v_late[i]; ord := v_late_ord[i];
            answer.next_wake := exists (select from consumers c where c.id = answer.consumer_id and c.state = 'waking');
            return next;
        end loop;
        v_todo := case when v_rest = '{}' then '{}' else array(select m from unnest(v_todo) m where m.ord = any (v_rest) order by m.ord) end;
    end loop;
    if v_wakes is not null then
        perform _wake_publish(v_wakes, v_now);
    end if;
end
$$;
comment on function rouse._claim_apply(jsonb, boolean, timestamptz) is 'claim_apply at a chosen time, for tests.';

create or replace function rouse.claim_apply(p_ops jsonb, p_wait boolean)
returns table (ord integer, answer rouse.claim_answer)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _claim_apply(p_ops, p_wait, null);
end
$$;
comment on function rouse.claim_apply(jsonb, boolean) is 'A batch of acquire, heartbeat, ack and release calls in one transaction.';
