-- _glob_sees: whether patterns match a path at all: it has at most 32 segments.
-- Deeper ones are watched by their names only, for to look for the patterns that
-- match takes time with the square of the depth, in the transaction that makes
-- the stream.
create or replace function rouse._glob_sees(p_path text) returns boolean
language sql immutable strict parallel safe
as $$
    select pg_catalog.cardinality(pg_catalog.string_to_array(p_path, '/')) operator(pg_catalog.<=) 32
$$;
comment on function rouse._glob_sees(text) is 'Whether a path is one that patterns match.';
