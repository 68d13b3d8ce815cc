-- _entity_transition: what a signal does to a status (agents-wire section 2).
-- p_held says that the mutex is held. Returns the new status, whether the
-- server itself carries the signal out, and whether it ends the entity.
create or replace function rouse._entity_transition(
    p_signal text, p_status text, p_held boolean, out new_status text, out handled boolean, out ends boolean
)
language sql immutable
set search_path = rouse, pg_temp
as $$
    select s, s <> p_status or p_signal = 'SIGKILL', s in ('stopped', 'killed')
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
