-- _retention_walked: puts a walk down that _retention_walk took up: it goes on
-- behind p_cursor, or is at its end when that is null.
create or replace function rouse._retention_walked(p_name text, p_cursor text, p_now timestamptz) returns void
language sql
set search_path = rouse, pg_temp
as $$
    update retention_walks t set cursor = p_cursor, finished_at = case when p_cursor is null then p_now else t.finished_at end
     where t.name = p_name
$$;
comment on function rouse._retention_walked(text, text, timestamptz) is 'Puts a walk down after one step.';
