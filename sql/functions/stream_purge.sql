-- stream_purge: one bounded step of the clean-up: retires streams past their
-- expiry, then removes rows of retired streams (at most p_limit appends). Call
-- it again while any number is p_limit or more. Streams that somebody has
-- locked are left for the next call.
create or replace function rouse.stream_purge(p_limit integer default 10000)
returns table (expired integer, messages integer, streams integer)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_purge(p_limit, null);
end
$$;
comment on function rouse.stream_purge(integer) is 'Retires expired streams and removes rows of retired ones, in bounded steps.';
