-- _stream_retire: takes a stream out of its clients' sight, in the caller's
-- transaction, which holds the stream's row lock.
-- While forks read from it, it stays as a soft-deleted row with its name;
-- otherwise its name is free at once and stream_purge removes the rows later.
-- The last fork to go takes a soft-deleted source with it, up the chain.
-- Subscriptions no longer watch it.
create or replace function rouse._stream_retire(p_stream_id bigint, p_now timestamptz) returns void
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
declare
    v_id bigint := p_stream_id;
    s    streams%rowtype;
begin
    while v_id is not null loop
        select * into s from streams where id = v_id for update;
        if exists (select 1 from streams where forked_from = v_id) then
            exit when v_id <> p_stream_id or s.deleted_at is not null;
            update streams set deleted_at = p_now, pending = false, watched = watched & ~1 where id = v_id;
            if s.watched & 1 = 1 then
                delete from consumer_streams where stream_id = v_id and link_type <> 'own';
            end if;
            perform _notice(v_id, s.tail, 4);
            exit;
        end if;
        exit when v_id <> p_stream_id and s.deleted_at is null;
        update streams
           set path = null, deleted_at = coalesce(deleted_at, p_now), pending = false, expires_at = null,
               forked_from = null, fork_at = null, watched = watched & ~1
         where id = v_id;
        if s.watched & 1 = 1 then
            delete from consumer_streams where stream_id = v_id and link_type <> 'own';
        end if;
        perform _notice(v_id, s.tail, 4);
        v_id := s.forked_from;
    end loop;
end
$$;
comment on function rouse._stream_retire(bigint, timestamptz) is 'Deletes a locked stream: softly while forks read from it, else for good, and then soft-deleted sources without forks too.';
