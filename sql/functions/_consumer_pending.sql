-- _consumer_pending: whether a consumer has work beyond what it has acked.
-- The caller holds the consumer's row lock, so that acked stands still; an
-- append that commits later tells the router itself.
create or replace function rouse._consumer_pending(p_consumer_id bigint) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return exists (
        select from consumer_streams cs join streams s on s.id = cs.stream_id
         where cs.consumer_id = p_consumer_id and s.actionable > cs.acked and s.path is not null);
end
$$;
comment on function rouse._consumer_pending(bigint) is 'Pending means: the last actionable position is beyond the acked one.';
