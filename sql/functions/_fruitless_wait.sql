-- _fruitless_wait: how long after it is made a push wake is told, when as many
-- claims before it ended without an ack that moved anything: the first is told
-- again at once, then after 1 s, doubling to 60 s.
create or replace function rouse._fruitless_wait(p_fruitless integer) returns interval
language sql immutable
as $$
    select case when p_fruitless < 2 then interval '0' else least(60, power(2, least(p_fruitless - 2, 6))) * interval '1 s' end
$$;
comment on function rouse._fruitless_wait(integer) is 'The wait before a receiver that makes no progress is told again.';
