-- subscription_register: registers a subscription, or confirms one: the same
-- configuration again is harmless. What exists already is linked afterwards by
-- subscription_settle, which the caller repeats until it is done; streams that
-- are made from now on link themselves. p_mount is the path prefix it is made
-- through. The wake stream of a pull-wake subscription is made if it is absent;
-- patterns pass over wake streams. p_target is for types other than webhook and
-- pull-wake: what their transport is handed.
-- Outcomes: created, confirmed, conflict (another configuration), forbidden
-- (exists and is somebody else's), stream_forbidden, stream_reserved,
-- wake_stream_guarded, wake_stream_type (not JSON, or closed), wake_stream_own.
create or replace function rouse.subscription_register(
    p_service integer, p_id text, p_type text, p_pattern text, p_streams text[], p_wake_stream text, p_webhook_url text,
    p_target jsonb, p_description text, p_lease_ms integer, p_mount text, p_owner text, p_system boolean
) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_streams text[] := array(select distinct x from unnest(p_streams) x order by x);
    v_hash    text;
    v_wake    streams;
    v_refusal text;
    v_made    text;
    v_new     bigint;
    v_id      bigint;
    v_now     timestamptz := clock_timestamp();
    s         subscriptions;
begin
    v_hash := encode(sha256(convert_to((jsonb_build_object('type', p_type, 'pattern', p_pattern, 'streams', v_streams, 'wake_stream', p_wake_stream,
        'webhook', p_webhook_url, 'lease_ttl_ms', p_lease_ms, 'description', p_description)
        -- Configurations without one keep the hash that they were stored with.
        || case when p_target is null then '{}' else jsonb_build_object('target', p_target) end)::text, 'UTF8')), 'hex');
    -- Two rounds in practice: who loses a race for a name finds the winner's.
    for v_round in 1 .. 10 loop
        select * into s from subscriptions x where x.id = p_id and x.service_id = p_service;
        if found then
            return case when s.owner <> p_owner and not p_system then 'forbidden'
                        when s.config_hash <> v_hash then 'conflict' else 'confirmed' end;
        end if;
        v_refusal := _subscription_refusal(p_service, v_streams, p_wake_stream, p_owner, p_system);
        if v_refusal is null and p_wake_stream is not null then
            select * into v_wake from streams t where t.service_id = p_service and t.path = p_wake_stream
                and (t.expires_at is null or t.deleted_at is not null or t.expires_at > v_now);
            if left(p_wake_stream, 1) = '_' or v_wake.kind <> 'app' then
                v_refusal := 'wake_stream_guarded';
            elsif v_wake.id is not null and (not v_wake.is_json or v_wake.closed_at is not null or v_wake.deleted_at is not null) then
                v_refusal := 'wake_stream_type';
            end if;
        end if;
        if v_refusal is not null then
            return v_refusal;
        end if;

        v_new := nextval(pg_get_serial_sequence('rouse.consumers', 'id'));
        insert into subscriptions (consumer_id, service_id, id, type, pattern, wake_stream, webhook_url, target, description, config_hash, mount, owner,
                system, scan_done, changed_at, created_at)
        values (v_new, p_service, p_id, p_type, p_pattern, p_wake_stream, p_webhook_url, p_target, p_description, v_hash, p_mount, p_owner,
                p_system, p_pattern is null, v_now, v_now)
        on conflict on constraint subscriptions_id_service_id_key do nothing;
        if found then
            v_id := v_new;
            exit;
        end if;
    end loop;
    if v_id is null then
        raise exception 'subscription_register keeps losing a race' using errcode = 'lock_not_available';
    end if;
    if p_wake_stream is not null and v_wake.id is null then
        -- The subscription is there first, so that nobody's pattern finds its wake stream.
        v_made := (select c.outcome from _stream_create(p_service, p_wake_stream, 'application/json', null, null, false, null, 0, null,
                                                        null, null, null, 'app', null, null, null) c);
        if v_made not in ('created', 'exists') then
            delete from subscriptions x where x.consumer_id = v_id;
            return case v_made when 'guarded' then 'wake_stream_guarded' else 'wake_stream_type' end;
        end if;
    end if;
    -- The name is new for each life of an id, as epochs begin anew.
    insert into consumers (id, service_id, name, kind, lease_ttl_ms, created_at) overriding system value
    values (v_id, p_service, 's_' || left(encode(sha256(convert_to(p_service || '/' || p_id || '/' || v_id, 'UTF8')), 'hex'), 32),
            'subscription', p_lease_ms, v_now);
    insert into subscription_globs (consumer_id, service_id, pattern, owner, system)
    select v_id, p_service, g.pattern, p_owner, p_system from _glob_parse(p_pattern) g where p_pattern is not null;
    insert into subscription_paths (path, service_id, consumer_id) select x, p_service, v_id from unnest(v_streams) x;
    perform audit_add(p_service, p_owner, 'subscription.create', '/__ds/subscriptions/' || p_id,
        jsonb_strip_nulls(jsonb_build_object('type', p_type, 'pattern', p_pattern)));
    return 'created';
end
$$;
comment on function rouse.subscription_register(integer, text, text, text, text[], text, text, jsonb, text, integer, text, text, boolean)
    is 'Registers or confirms a subscription.';
