-- _glob_literal: a segment of a path as it stands in a pattern of
-- subscription_globs: what would be a wildcard has a control character before
-- it, which no path holds. Without a search_path of its own, so that it is
-- inlined.
create or replace function rouse._glob_literal(p_segment text) returns text
language sql immutable strict parallel safe
as $$
    select case when p_segment in ('*', '**') then E'\x01' operator(pg_catalog.||) p_segment else p_segment end
$$;
comment on function rouse._glob_literal(text) is 'A literal segment of a stored pattern.';
