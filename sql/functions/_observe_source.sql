-- _observe_source: the path of the stream that a source's url means: an entity's
-- main stream, or the stream of that path. A url of neither is an entity to come,
-- unless it begins with an underscore or names a main stream already.
create or replace function rouse._observe_source(p_service_id integer, p_url text) returns text
language plpgsql stable
set search_path = rouse, pg_temp
as $$
declare
    v_path text := ltrim(p_url, '/');
begin
    if v_path ~ '^_' or v_path ~ '/main$' then
        return v_path;
    elsif exists (select from entities e where e.url = '/' || v_path and e.service_id = p_service_id) then
        return coalesce((select s.path from streams s where s.id = _entity_main(p_service_id, '/' || v_path)), v_path || '/main');
    elsif v_path !~ '/' or exists (select from streams s where s.path = v_path and s.service_id = p_service_id and s.kind = 'app') then
        return v_path;
    end if;
    return v_path || '/main';
end
$$;
comment on function rouse._observe_source(integer, text) is 'The path of the stream that a source''s url means.';
