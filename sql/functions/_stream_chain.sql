-- _stream_chain: the stretches a stream is made of, oldest last: its own rows
-- above its fork point, its source's below that, and so on. Each stretch holds
-- the positions lo < position <= hi.
create or replace function rouse._stream_chain(p_stream_id bigint, p_hi bigint)
returns table (stream_id bigint, lo bigint, hi bigint)
language sql stable
set search_path = rouse, pg_temp
as $$
    with recursive c as (
        select s.id, coalesce(s.fork_at, 0) as lo, p_hi as hi, s.forked_from from streams s where s.id = p_stream_id
        union all
        select s.id, least(coalesce(s.fork_at, 0), c.lo), c.lo, s.forked_from from c join streams s on s.id = c.forked_from
         where c.lo > 0
    )
    select c.id, c.lo, c.hi from c where c.hi > c.lo
$$;
comment on function rouse._stream_chain(bigint, bigint) is 'The stretches of a stream up to a position, its own first, then its sources''.';
