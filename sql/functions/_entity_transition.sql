-- _entity_transition: what a signal does to a status (agents-wire section 2).
-- p_held says that the mutex is held. Returns the new status, whether the
-- server itself has dealt with the signal, and whether it ends the entity.
-- Not dealt with, although the status changes, is what the holder must act on:
-- a running app heeds only signals that are still unhandled, so SIGTERM and
-- SIGSTOP of a held entity, and SIGCONT, are left for it. A paused entity that
-- nobody holds has nobody to act on anything else.
create or replace function rouse._entity_transition(
    p_signal text, p_status text, p_held boolean, out new_status text, out handled boolean, out ends boolean
)
language sql immutable
set search_path = rouse, pg_temp
as $$
    select s,
           s in ('stopped', 'killed')
           or s = 'paused' and p_status <> 'running' and not p_held,
           s in ('stopped', 'killed')
      from (select case
            when p_signal = 'SIGKILL' then 'killed'
            when p_signal = 'SIGTERM' and p_status in ('running', 'stopping') then 'stopping'
            when p_signal = 'SIGTERM' and p_held then 'stopping'
            when p_signal = 'SIGTERM' then 'stopped'
            when p_signal = 'SIGSTOP' and p_status in ('spawning', 'idle', 'running') then 'paused'
            when p_signal = 'SIGCONT' and p_status = 'paused' then case when p_held then 'running' else 'idle' end
            else p_status end as s) x
$$;
comment on function rouse._entity_transition(text, text, boolean) is 'The status a signal leads to.';
