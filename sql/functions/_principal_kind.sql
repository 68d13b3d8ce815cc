-- _principal_kind: the kind in a principal's URL, /principal/<kind>%3A<id>.
create or replace function rouse._principal_kind(p_principal text) returns text
language sql immutable
set search_path = rouse, pg_temp
as $$
    select split_part(substr(p_principal, 12), '%3A', 1)
$$;
comment on function rouse._principal_kind(text) is 'The kind of a principal.';
