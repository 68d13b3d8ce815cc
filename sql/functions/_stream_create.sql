-- _stream_create: stream_create with a chosen time (null = the clock).
create or replace function rouse._stream_create(
    p_service integer, p_path text, p_content_type text, p_ttl_seconds bigint, p_expires_at timestamptz,
    p_closed boolean, p_payload bytea, p_count integer, p_stamps integer[],
    p_fork_path text, p_fork_offset bigint, p_fork_sub bigint,
    p_kind text, p_owner text, p_consumer_id bigint, p_now timestamptz)
returns table (outcome text, stream_id bigint, tail bigint, closed boolean, content_type text)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
    v_now    timestamptz;
    v_id     bigint;
    v_type   text := p_content_type;
    v_json   boolean;
    v_ttl    bigint := p_ttl_seconds;
    v_expiry timestamptz := p_expires_at;
    v_at     bigint;
    v_tail   bigint := 0;
    v_sub    bigint := nullif(p_fork_sub, 0);
    v_prefix bytea;
    v_count  integer;
    v_stamps integer[];
    v_linked boolean;
    s        streams%rowtype;
    src      streams%rowtype;
    m        messages%rowtype;
begin
    -- Two rounds at most in practice: a name that is taken or freed in between
    -- is met again in the next.
    for v_round in 1 .. 10 loop
        select * into s from streams t where t.service_id = p_service and t.path = p_path;
        if found then
            if s.deleted_at is null and s.expires_at <= coalesce(p_now, clock_timestamp()) then
                select * into s from streams t where t.service_id = p_service and t.path = p_path for update;
                v_now := coalesce(p_now, clock_timestamp());
                if s.deleted_at is null and s.expires_at <= v_now then
                    perform _stream_retire(s.id, v_now);
                end if;
                continue;
            end if;
            outcome := 'exists'; stream_id := s.id; tail := s.tail; closed := s.closed_at is not null; content_type := s.content_type;
            if s.deleted_at is not null then
                outcome := 'gone';
            elsif s.kind <> 'app' and s.kind is distinct from p_kind then
                outcome := 'guarded';
            elsif s.kind <> p_kind
               or (p_content_type is not null or p_fork_path is null)
                   and split_part(s.content_type, ';', 1) <> split_part(coalesce(p_content_type, 'application/octet-stream'), ';', 1)
               or (s.closed_at is not null) <> p_closed
               or (p_fork_path is not null) <> (s.forked_from is not null) then
                outcome := 'conflict';
            elsif p_fork_path is not null
              and (s.fork_offset is distinct from p_fork_offset or s.fork_sub is distinct from v_sub
                   or not exists (select 1 from streams t where t.id = s.forked_from and t.service_id = p_service and t.path = p_fork_path)) then
                outcome := 'conflict';
            elsif (p_fork_path is null or p_ttl_seconds is not null or p_expires_at is not null)
              and (s.ttl_seconds is distinct from p_ttl_seconds
                   or s.ttl_seconds is null and s.expires_at is distinct from p_expires_at) then
                outcome := 'conflict';
            end if;
            return next;
            return;
        end if;

        if p_kind = 'app' and (p_path ~ '/.+/(main|error)$' and exists (
               select 1 from entity_types t where t.service_id = p_service and t.name = split_part(p_path, '/', 1))
            or p_path like '%/error' and exists (
               select 1 from entities e where e.service_id = p_service and e.url = '/' || left(p_path, -6))
            or p_path like '%/attachments/%' and exists (
               select 1 from entities e where e.service_id = p_service and e.url = '/' || regexp_replace(p_path, '/attachments/[^/]*$', ''))) then
            -- The name of an entity's main stream, that there is or may be one day; of its error stream, which is made at its
            -- first write; or of one of its attachments.
            outcome := 'guarded';
            return next;
            return;
        end if;

        if p_fork_path is not null then
            -- A key-share lock keeps the source from being deleted meanwhile
            -- and lets it be appended to.
            select * into src from streams t where t.service_id = p_service and t.path = p_fork_path for key share;
            v_now := coalesce(p_now, clock_timestamp());
            if src.id is null or src.deleted_at is null and src.expires_at <= v_now then
                outcome := 'source_not_found';
            elsif src.deleted_at is not null then
                outcome := 'source_gone';
            elsif src.kind <> 'app' then
                outcome := 'guarded';
            elsif p_content_type is not null and split_part(p_content_type, ';', 1) <> split_part(src.content_type, ';', 1) then
                outcome := 'content_type';
            end if;
            v_at := coalesce(p_fork_offset, src.tail);
            -- What was trimmed cannot be forked; a fork without anything of its source can be made.
            if outcome is null and (v_at < src.head and (v_at <> 0 or v_sub is not null)
                                    or v_at <> src.tail and v_at <> src.head and v_at <> 0 and not exists (
                select 1 from _stream_chain(src.id, src.tail) k
                         join messages x on x.stream_id = k.stream_id and x.position = v_at
                 where v_at > k.lo and v_at <= k.hi)) then
                outcome := 'fork_offset';
            end if;
            if outcome is null and v_sub is not null then
                select x.* into m
                  from _stream_chain(src.id, src.tail) k
                 cross join lateral (select * from messages x
                                      where x.stream_id = k.stream_id and x.position > greatest(v_at, k.lo) and x.position <= k.hi
                                      order by x.position limit 1) x
                 order by x.position limit 1;
                if m.stream_id is null or p_fork_offset is null
                   or v_sub > (case when src.is_json then m.count else octet_length(m.payload) end) then
                    outcome := 'fork_sub';
                elsif src.is_json then
                    -- The json type keeps each message's bytes as they are.
                    select convert_to(string_agg(e.value::text, ',' order by e.n), 'UTF8') into v_prefix
                      from json_array_elements(('[' || convert_from(m.payload, 'UTF8') || ']')::json) with ordinality e (value, n)
                     where e.n <= v_sub;
                    v_count := v_sub;
                    select array_agg(x order by x) into v_stamps from unnest(m.stamps) x where x < octet_length(v_prefix);
                else
                    v_prefix := substr(m.payload, 1, v_sub::integer);
                    v_count := 1;
                end if;
            end if;
            if outcome is not null then
                return next;
                return;
            end if;
            v_type := coalesce(p_content_type, src.content_type);
            if v_ttl is null and v_expiry is null then
                v_ttl := src.ttl_seconds;
                v_expiry := case when src.ttl_seconds is null then src.expires_at end;
            end if;
            v_tail := v_at + coalesce(octet_length(v_prefix), 0);
        else
            v_now := coalesce(p_now, clock_timestamp());
        end if;

        v_type := coalesce(v_type, 'application/octet-stream');
        v_json := split_part(v_type, ';', 1) = 'application/json';
        insert into streams as t (service_id, path, kind, owner, content_type, is_json, tail, head, closed_at, ttl_seconds, expires_at,
                                  consumer_id, forked_from, fork_at, fork_offset, fork_sub, created_at)
        values (p_service, p_path, p_kind, p_owner, v_type, v_json, v_tail + coalesce(octet_length(p_payload), 0), least(coalesce(src.head, 0), v_at),
                case when p_closed then v_now end, v_ttl,
                case when v_ttl is null then v_expiry else v_now + make_interval(secs => v_ttl) end,
                p_consumer_id, src.id, v_at, p_fork_offset, v_sub, v_now)
        on conflict on constraint streams_path_service_id_key do nothing
        returning t.id, t.tail into v_id, v_tail;
        continue when v_id is null;

        if v_prefix is not null then
            insert into messages (stream_id, position, payload, count, stamps)
            values (v_id, v_at + octet_length(v_prefix), v_prefix, v_count, v_stamps);
        end if;
        if octet_length(p_payload) > 0 then
            insert into messages (stream_id, position, payload, count, stamps)
            values (v_id, v_tail, p_payload, p_count, p_stamps);
        end if;
        v_linked := _subscription_discover(p_service, v_id, p_path, p_kind, p_owner, v_tail);
        perform _notice(v_id, v_tail, 8 + case when p_closed then 2 else 0 end + case when v_linked and v_tail > 0 then 16 else 0 end);
        outcome := 'created'; stream_id := v_id; tail := v_tail; closed := p_closed; content_type := v_type;
        return next;
        return;
    end loop;
    outcome := 'busy';
    return next;
end
$$;
comment on function rouse._stream_create is 'stream_create with a chosen time, for tests.';
