-- _stream_append: the work of stream_append with a chosen time (null = the
-- clock, read after the locks). See stream_append for the contract.
--
-- Two lanes in one transaction. Groups are plain appends, summed up per stream
-- by the caller: one statement locks and moves all tails, one inserts all rows.
-- Specials (producer, Stream-Seq, close, write token) are decided one by one.
-- Without p_wait every lock is SKIP LOCKED: the call never waits for a row, so
-- it cannot deadlock and one slow stream cannot hold up its neighbours.
-- The planner settings pin the only shape that scales: one index probe a group.
create or replace function rouse._stream_append(
    -- groups: one element a stream, each stream at most once
    p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[],
    -- the groups' appends: group number (from 1), end position relative to the group's start
    p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[],
    -- specials
    s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[],
    s_payloads bytea[], s_counts integer[], s_stamps text[],
    s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[],
    s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[],
    p_wait boolean, p_now timestamptz)
returns table (special boolean, ord integer, outcome text, stream_id bigint, tail bigint, closed boolean,
               content_type text, producer_epoch bigint, producer_seq bigint)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    v_groups   integer := coalesce(cardinality(p_paths), 0);
    v_specials integer := coalesce(cardinality(s_paths), 0);
    v_now      timestamptz;
    v_ids      bigint[];
    v_bases    bigint[];
    v_done     integer := 0;
    v_notice   text := '';
    v_busy     text[] := '{}';
    v_watched  bigint[] := '{}';
    v_ended    bigint[] := '{}';  -- observed, and closed without an append
    v_key      text;
    v_bytes    bigint;
    v_tail     bigint;
    v_flags    integer;
    v_close    boolean;
    v_producer boolean;
    v_act      boolean;
    r          record;
    s          streams%rowtype;
    c          consumers%rowtype;
    p          producers%rowtype;
begin
    if p_wait then
        -- The side lane waits, bounded, for the rows of one stream; consumers
        -- come before streams, as everywhere.
        perform set_config('lock_timeout', '5000', true);
        if v_specials > 0 then
            perform 1 from consumers where id = any (s_consumers) order by id for update;
        end if;
        perform 1
           from (select distinct k.service_id, k.path
                   from unnest(p_services || s_services, p_paths || s_paths) k (service_id, path)
                  order by 1, 2) k
           cross join lateral (select 1 from streams t
                                where t.service_id = k.service_id and t.path = k.path
                                  for no key update) t;
    end if;
    v_now := coalesce(p_now, clock_timestamp());

    if v_groups > 0 then
        v_ids := array_fill(0::bigint, array[v_groups]);
        v_bases := v_ids;
        for r in
            with g as materialized (
                select * from unnest(p_services, p_paths, p_types, p_internal, p_actionable, p_bytes)
                    with ordinality g (service_id, path, type, internal, actionable, bytes, ord)
            ), l as materialized (
                select g.ord, g.bytes, t.id, g.actionable and t.kind = 'entity' as act
                  from g
                 cross join lateral (
                    select t.id, t.kind from streams t
                     where t.service_id = g.service_id and t.path = g.path
                       and t.closed_at is null and t.deleted_at is null
                       and (t.expires_at is null or t.expires_at > v_now)
                       and split_part(t.content_type, ';', 1) = g.type
                       and (t.kind = 'app' or g.internal)
                       for no key update skip locked) t
            )
            update streams t
               set tail = t.tail + l.bytes,
                   actionable = case when l.act then t.tail + l.bytes else t.actionable end,
                   pending = t.pending or l.act,
                   expires_at = case when t.ttl_seconds is null then t.expires_at
                                     else _stream_slide(t.expires_at, t.ttl_seconds, v_now) end
              from l
             where t.id = l.id
            returning l.ord::integer as ord, t.id, t.tail, l.bytes, l.act, t.watched, t.content_type
        loop
            v_ids[r.ord] := r.id;
            v_bases[r.ord] := r.tail - r.bytes;
            v_done := v_done + 1;
            v_notice := v_notice || ',' || r.id || ':' || r.tail || ':' || (r.act::integer + 16 * r.watched);
            if r.watched <> 0 then
                v_watched := v_watched || r.id;
            end if;
            special := false; ord := r.ord; outcome := 'appended'; stream_id := r.id; tail := r.tail;
            closed := false; content_type := r.content_type;
            return next;
        end loop;

        if v_done > 0 then
            insert into messages (stream_id, position, payload, count, stamps)
            select v_ids[i.grp], v_bases[i.grp] + i.rel, i.payload, i.count, i.stamps::integer[]
              from unnest(p_group, p_rel, p_payloads, p_counts, p_stamps) i (grp, rel, payload, count, stamps)
             where v_ids[i.grp] <> 0;
        end if;

        if v_done < v_groups then
            for r in
                select g.ord::integer as ord, g.service_id, g.path, t.id, t.tail, t.closed_at, t.content_type,
                       case when t.deleted_at is not null then 'gone'
                            when t.id is null or t.expires_at <= v_now then 'not_found'
                            when t.kind <> 'app' and not g.internal then 'guarded'
                            when t.closed_at is not null then 'closed'
                            when split_part(t.content_type, ';', 1) <> g.type then 'content_type'
                            else 'busy' end as outcome
                  from unnest(p_services, p_paths, p_types, p_internal)
                       with ordinality g (service_id, path, type, internal, ord)
                  left join lateral (select * from streams t
                                      where t.service_id = g.service_id and t.path = g.path) t on true
                 where v_ids[g.ord] = 0
            loop
                if r.outcome = 'busy' then
                    v_busy := v_busy || (r.service_id || '/' || r.path);
                end if;
                special := false; ord := r.ord; outcome := r.outcome; stream_id := r.id; tail := r.tail;
                closed := r.closed_at is not null; content_type := r.content_type;
                return next;
            end loop;
        end if;
    end if;

    for i in 1 .. v_specials loop
        special := true; ord := i; outcome := null; stream_id := null; tail := null; closed := null;
        content_type := null; producer_epoch := null; producer_seq := null;
        v_key := s_services[i] || '/' || s_paths[i];
        v_close := s_closes[i];
        v_producer := s_producers[i] is not null;
        c := null;

        -- Appends of one stream keep their order: behind a skipped one, all are.
        if v_key = any (v_busy) then
            outcome := 'busy';
            return next;
            continue;
        end if;
        if s_consumers[i] is not null then
            select * into c from consumers where id = s_consumers[i] for update skip locked;
            if not found and exists (select 1 from consumers where id = s_consumers[i]) then
                v_busy := v_busy || v_key;
                outcome := 'busy';
                return next;
                continue;
            end if;
        end if;
        select * into s from streams t
         where t.service_id = s_services[i] and t.path = s_paths[i]
           for no key update skip locked;
        if not found then
            outcome := 'not_found';
            if exists (select 1 from streams t where t.service_id = s_services[i] and t.path = s_paths[i]) then
                v_busy := v_busy || v_key;
                outcome := 'busy';
            end if;
            return next;
            continue;
        end if;
        v_now := coalesce(p_now, clock_timestamp());
        stream_id := s.id; tail := s.tail; closed := s.closed_at is not null; content_type := s.content_type;

        if s.deleted_at is not null then
            outcome := 'gone';
        elsif s.expires_at <= v_now then
            outcome := 'not_found';
        elsif s.kind <> 'app' and not s_internal[i] then
            if c.id is null or s.kind not in ('entity', 'error')
               or s.consumer_id is distinct from c.id and not (c.kind = 'subscription' and _subscription_writes(c.id, s.id)) then
                outcome := 'guarded';
            elsif c.state <> 'claimed' or c.epoch <> s_claim_epochs[i] or c.wake_id is distinct from s_wakes[i] then
                outcome := 'token_stale';
            elsif c.lease_expires_at <= v_now then
                outcome := 'lease_expired';
            end if;
        end if;
        if outcome is not null then
            return next;
            continue;
        end if;

        -- A repeat answers what the first answered, even after a close: producers go first.
        p := null;
        if v_producer then
            select * into p from producers q where q.stream_id = s.id and q.producer_id = s_producers[i];
            producer_epoch := p.epoch;
            producer_seq := p.seq;
            if p.epoch is null then
                outcome := case when s_seqs[i] > 0 then 'producer_gap' end;
                producer_epoch := s_epochs[i];
                producer_seq := -1;
            elsif s_epochs[i] < p.epoch then
                outcome := 'producer_fenced';
            elsif s_epochs[i] > p.epoch then
                outcome := case when s_seqs[i] > 0 then 'producer_epoch_seq' end;
            elsif s_seqs[i] <= p.seq then
                outcome := 'duplicate';
                tail := p.position;
            elsif s_seqs[i] > p.seq + 1 then
                outcome := 'producer_gap';
            end if;
            if outcome = 'producer_gap' and closed then
                outcome := 'closed';
            end if;
        end if;
        if outcome is null then
            if closed then
                outcome := case when s_payloads[i] is null and not v_producer then 'duplicate' else 'closed' end;
            elsif s_payloads[i] is not null and split_part(s.content_type, ';', 1) <> s_types[i] then
                outcome := 'content_type';
            elsif s_stream_seqs[i] collate "C" <= s.last_seq then
                outcome := 'seq';
            end if;
        end if;
        if outcome is not null then
            return next;
            continue;
        end if;

        v_bytes := coalesce(octet_length(s_payloads[i]), 0);
        v_tail := s.tail + v_bytes;
        v_act := s_actionable[i] and s_internal[i] and s.kind = 'entity' and v_bytes > 0;
        v_flags := v_act::integer + 2 * v_close::integer;
        if s.watched <> 0 and v_bytes > 0 then
            v_watched := v_watched || s.id;
            v_flags := v_flags + 16 * s.watched;
        elsif s.watched & 2 = 2 and v_close then
            v_ended := v_ended || s.id;
            v_flags := v_flags + 32;
        end if;
        update streams t
           set tail = v_tail,
               actionable = case when v_act then v_tail else t.actionable end,
               pending = t.pending or v_act,
               last_seq = coalesce(s_stream_seqs[i], t.last_seq),
               closed_at = case when v_close then v_now end,
               closed_by = case when v_close then s_producers[i] end,
               expires_at = case when t.ttl_seconds is null then t.expires_at
                                 else _stream_slide(t.expires_at, t.ttl_seconds, v_now) end
         where t.id = s.id;
        if v_bytes > 0 then
            insert into messages (stream_id, position, payload, count, stamps)
            values (s.id, v_tail, s_payloads[i], s_counts[i], s_stamps[i]::integer[]);
        end if;
        if v_producer then
            insert into producers (stream_id, producer_id, epoch, seq, position)
            values (s.id, s_producers[i], s_epochs[i], s_seqs[i], v_tail)
            on conflict on constraint producers_pkey
            do update set epoch = excluded.epoch, seq = excluded.seq, position = excluded.position;
            producer_epoch := s_epochs[i];
            producer_seq := s_seqs[i];
        end if;
        v_notice := v_notice || ',' || s.id || ':' || v_tail || ':' || v_flags;
        outcome := 'appended';
        tail := v_tail;
        closed := v_close;
        return next;
    end loop;

    if v_watched <> '{}' then
        perform _stream_watched(v_watched);
    end if;
    if v_ended <> '{}' then
        perform _stream_ended(v_ended);
    end if;
    if v_notice <> '' then
        perform pg_logical_emit_message(true, 'rouse', substr(v_notice, 2));
    end if;
end
$$;
comment on function rouse._stream_append is 'stream_append with a chosen time, for tests.';
