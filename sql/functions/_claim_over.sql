-- _claim_over: whether a claim whose lease has lapsed by p_now is over for good.
-- It is not while somebody has its mutex: a heartbeat that came in time may be
-- about to extend it; nor when this round has (p_granted holds "service/h/id" for
-- a consumer whose heartbeat it carries out). The mutex is locked, never waited
-- for: a heartbeat that comes now reads the clock behind that lock.
create or replace function rouse._claim_over(p_service_id integer, p_consumer text, p_epoch bigint, p_granted text[], p_now timestamptz) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    c consumers;
begin
    select * into c from consumers x where x.name = any (array[p_consumer]) and x.service_id = p_service_id for update skip locked;
    return c.id is not null and (p_service_id || '/h/' || c.id) <> all (coalesce(p_granted, '{}'))
       and not coalesce(c.state = 'claimed' and c.epoch = p_epoch and c.lease_expires_at > p_now, false);
end
$$;
comment on function rouse._claim_over(integer, text, bigint, text[], timestamptz) is 'Whether a lapsed claim can not be extended any more.';
