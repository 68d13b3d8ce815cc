-- _consumer_pending: whether a consumer has work beyond what it has acked: an
-- entity in the actionable appends to its own stream, a subscription in
-- anything appended to a stream that it watches. The caller holds the
-- consumer's row lock, so that acked stands still; an append that commits later
-- tells the router itself.
create or replace function rouse._consumer_pending(p_consumer_id bigint) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    -- A subscription may watch a million streams: only those marked as behind are looked at.
    if (select c.kind = 'subscription' from consumers c where c.id = p_consumer_id) then
        return exists (
            select from consumer_streams cs join streams s on s.id = any (array[cs.stream_id])
             where case when cs.behind then cs.consumer_id end = p_consumer_id and cs.behind and s.tail > cs.acked and s.path is not null);
    end if;
    return exists (
        select from consumer_streams cs join streams s on s.id = cs.stream_id
         where cs.consumer_id = p_consumer_id and s.actionable > cs.acked and s.path is not null);
end
$$;
comment on function rouse._consumer_pending(bigint) is 'Whether a consumer has unacked work.';
