-- _offset: the offset a client sees for a position: sixteen zeros, an
-- underscore, the position zero-padded, so that offsets sort as text.
create or replace function rouse._offset(p_position bigint) returns text
language sql immutable strict parallel safe
set search_path = rouse, pg_temp
as $$
    select '0000000000000000_' || lpad(p_position::text, 16, '0')
$$;
comment on function rouse._offset(bigint) is 'The wire form of a position.';
