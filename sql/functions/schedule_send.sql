-- schedule_send: a due message is appended to its entity (p_row), what became of
-- it to the manifest of the entity whose schedule it is (p_sent, or the element of
-- p_failed that fits), and the task is gone, in one transaction. p_resume lets a
-- paused entity go on. Whoever asked for it must still be allowed to send.
-- Outcomes: sent | not_found | not_running | forbidden (in the order of p_failed:
-- it will never be sent) | dropped (its owner has ended) | stale.
create or replace function rouse.schedule_send(p_id bigint, p_due_at timestamptz, p_row text, p_sent text, p_failed text[], p_resume boolean) returns text
language plpgsql
set search_path = rouse, pg_temp
set lock_timeout = '5s'
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    t         scheduled_tasks%rowtype;
    v_status  text;
    v_main    bigint;
    v_closed  boolean;
    v_owner   bigint;
    v_outcome text;
    v_tail    bigint;
    v_paused  boolean;
begin
    select * into t from scheduled_tasks x where x.id = p_id and x.due_at = p_due_at;
    if not found then
        return 'stale';
    end if;
    v_main := _entity_main(t.service_id, t.entity_url);
    v_owner := _entity_main(t.service_id, t.owner_url);
    -- Its mutex comes before the streams, and what wakes it behind them.
    v_paused := p_resume and exists (select from entities e where e.url = t.entity_url and e.service_id = t.service_id and e.status = 'paused');
    if v_paused then
        perform 1 from consumers c where c.id = (select e.consumer_id from entities e where e.url = t.entity_url and e.service_id = t.service_id) for update;
    end if;
    perform 1 from streams s where s.id = any (array[v_main, v_owner]) order by s.id for no key update;
    perform 1 from scheduled_tasks x where x.id = p_id and x.due_at = p_due_at for update skip locked;
    if not found then
        return 'stale';
    end if;
    select s.id into v_owner from streams s where s.id = v_owner and s.closed_at is null;
    select s.closed_at is not null into v_closed from streams s where s.id = v_main;
    select e.status into v_status from entities e where e.url = t.entity_url and e.service_id = t.service_id;
    delete from scheduled_tasks x where x.id = t.id;
    if t.owner_url is not null and v_owner is null then
        return 'dropped';
    end if;
    v_outcome := case
        when v_status is null or v_main is null then 'not_found'
        when v_closed or v_status in ('stopping', 'stopped', 'killed') then 'not_running'
        when not t.trusted and not exists (select from entity_allowed(t.service_id, t.principal, 'write', array[t.entity_url])) then 'forbidden'
        else 'sent' end;
    if v_outcome = 'sent' and t.producer_id is not null and exists (
           select from producers p where p.stream_id = v_main and p.producer_id = t.producer_id) then
        null; -- the same message has come another way
    elsif v_outcome = 'sent' then
        v_tail := _stream_push(v_main, p_row, true);
        if t.producer_id is not null then
            insert into producers (stream_id, producer_id, epoch, seq, position) values (v_main, t.producer_id, 0, 0, v_tail);
        end if;
    end if;
    if v_owner is not null then
        perform _stream_push(v_owner, case v_outcome when 'sent' then p_sent when 'not_found' then p_failed[1]
            when 'not_running' then p_failed[2] else p_failed[3] end, false);
    end if;
    if v_paused and v_outcome = 'sent' then
        perform entity_resume(t.service_id, t.entity_url);
    end if;
    return v_outcome;
end
$$;
comment on function rouse.schedule_send(bigint, timestamptz, text, text, text[], boolean) is 'Sends a due message.';
