-- _subscription_stream: how a subscription's link is told: the position up to
-- which it is acked (-1 for one that was found later and never read from), the
-- stream's tail, and whether there is something between them.
create or replace function rouse._subscription_stream(p_path text, p_link_type text, p_acked bigint, p_tail bigint) returns jsonb
language sql immutable parallel safe
as $$
    select pg_catalog.jsonb_build_object('path', p_path, 'link_type', p_link_type,
        'acked_offset', case when p_link_type = 'glob' and p_acked = 0 then '-1' else rouse._offset(p_acked) end,
        'tail_offset', rouse._offset(p_tail), 'has_pending', p_tail > p_acked)
$$;
comment on function rouse._subscription_stream(text, text, bigint, bigint) is 'The wire form of a subscription''s link.';
