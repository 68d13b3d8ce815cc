-- _offset: the offset a client sees for a position: sixteen zeros, an
-- underscore, the position zero-padded, so that offsets sort as text. Without a
-- search_path of its own, so that it is inlined; it names pg_catalog only.
create or replace function rouse._offset(p_position bigint) returns text
language sql immutable strict parallel safe
as $$
    select '0000000000000000_' operator(pg_catalog.||) pg_catalog.lpad(p_position::pg_catalog.text, 16, '0')
$$;
comment on function rouse._offset(bigint) is 'The wire form of a position.';
