-- _principal_trusted: whether a principal is one of the built-in system ones,
-- which pass every check, for what is done on its behalf when it is not there.
create or replace function rouse._principal_trusted(p_principal text) returns boolean
language sql immutable
set search_path = rouse, pg_temp
as $$
    select p_principal in ('/principal/system%3Adev-local', '/principal/system%3Aframework', '/principal/system%3Aauth-sync')
$$;
comment on function rouse._principal_trusted(text) is 'Whether a principal passes every check.';
