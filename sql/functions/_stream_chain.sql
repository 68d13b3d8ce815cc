-- _stream_chain: the stretches a stream is made of, oldest last: its own rows
-- above its fork point, its source's below that, and so on. Each stretch holds
-- the positions lo < position <= hi. In plpgsql, which keeps its plans: it is
-- asked several times for each trim, and most streams are no forks.
create or replace function rouse._stream_chain(p_stream_id bigint, p_hi bigint)
returns table (stream_id bigint, lo bigint, hi bigint)
language plpgsql stable
set search_path = rouse, pg_temp
as $$
declare
    v_id   bigint := p_stream_id;
    v_fork bigint;
    v_next bigint;
begin
    hi := p_hi;
    loop
        select s.fork_at, s.forked_from into v_fork, v_next from streams s where s.id = v_id;
        exit when not found;
        -- A source's stretch ends where the one above it begins, also when that is forked below its own fork point.
        lo := case when stream_id is null then coalesce(v_fork, 0) else least(coalesce(v_fork, 0), hi) end;
        stream_id := v_id;
        if hi > lo then
            return next;
        end if;
        exit when lo <= 0 or v_next is null;
        v_id := v_next;
        hi := least(hi, lo);  -- p_hi may be below a fork point
    end loop;
end
$$;
comment on function rouse._stream_chain(bigint, bigint) is 'The stretches of a stream up to a position, its own first, then its sources''.';
