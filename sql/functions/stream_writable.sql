-- stream_writable: whether the holder of a claim may append to a stream now,
-- without appending: what stream_append would say before it looks at what is
-- appended. Locks nothing, so the answer is one of the moment.
-- Outcomes: ok | not_found | gone | closed | guarded (not a stream of this
-- consumer's) | token_stale | lease_expired.
create or replace function rouse.stream_writable(p_service_id integer, p_path text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid)
returns table (outcome text, tail bigint)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_now      timestamptz := clock_timestamp();
    v_stream   streams;
    v_consumer consumers;
begin
    select * into v_stream from streams s where s.service_id = p_service_id and s.path = p_path;
    select * into v_consumer from consumers c where c.id = p_consumer_id;
    outcome := case
        when v_stream.deleted_at is not null then 'gone'
        when v_stream.id is null or v_stream.expires_at <= v_now then 'not_found'
        when v_stream.kind = 'app' then 'ok'
        when v_consumer.id is null or v_stream.kind not in ('entity', 'error')
             or v_stream.consumer_id is distinct from v_consumer.id
                and not (v_consumer.kind = 'subscription' and _subscription_writes(v_consumer.id, v_stream.id)) then 'guarded'
        else case _claim_fence(v_consumer, p_epoch, p_wake_id, v_now)
            when 'ok' then 'ok' when 'lease_expired' then 'lease_expired' else 'token_stale' end
        end;
    if outcome = 'ok' and v_stream.closed_at is not null then
        outcome := 'closed';
    end if;
    tail := v_stream.tail;
    return next;
end
$$;
comment on function rouse.stream_writable(integer, text, bigint, bigint, uuid) is 'Whether a claim may append to a stream now.';
