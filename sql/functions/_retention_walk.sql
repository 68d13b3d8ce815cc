-- _retention_walk: takes a walk up for one step: locks its row and returns where
-- it goes on, an empty cursor at its beginning. No row when somebody else is at
-- it, or when the last walk ended less than p_period_ms ago. An end far ahead is
-- that of a clock which was set back since.
-- _retention_walked puts it down again: at p_cursor, null at its end.
create or replace function rouse._retention_walk(p_name text, p_period_ms bigint, p_now timestamptz)
returns setof text
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    w retention_walks%rowtype;
begin
    select * into w from retention_walks t where t.name = p_name for update skip locked;
    if not found or w.cursor is null and w.finished_at between p_now - p_period_ms * interval '1 ms' and p_now + p_period_ms * interval '1 ms' then
        return;
    end if;
    if w.cursor is null then
        update retention_walks t set started_at = p_now where t.name = p_name;
    end if;
    return next coalesce(w.cursor, '');
end
$$;
comment on function rouse._retention_walk(text, bigint, timestamptz) is 'Takes up a walk over a table for one step.';
