-- observe_back: what was appended to a stream up to a position, newest first: a
-- page of about p_bytes, at least one append. For reading back to where a run
-- began.
create or replace function rouse.observe_back(p_stream_id bigint, p_position bigint, p_bytes integer)
returns table ("position" bigint, payload bytea)
language plpgsql stable
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
begin
    return query
    select p.position, p.payload
      from (select x.position, x.payload, sum(octet_length(x.payload)) over (order by x.position desc) - octet_length(x.payload) as before
              from _stream_chain(p_stream_id, p_position) k
             cross join lateral (select * from messages x
                                  where x.stream_id = k.stream_id and x.position > k.lo and x.position <= k.hi
                                  order by x.position desc limit 500) x
             order by x.position desc limit 500) p
     where p.before < p_bytes
     order by p.position desc;
end
$$;
comment on function rouse.observe_back(bigint, bigint, integer) is 'A page of a stream, backwards from a position.';
