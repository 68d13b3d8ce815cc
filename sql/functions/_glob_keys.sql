-- _glob_keys: under which keys the patterns that could match a path are filed:
-- every pair of some of its leading and some of its trailing segments, at most
-- four each. At most 25 keys, however long the path and however many patterns.
create or replace function rouse._glob_keys(p_path text) returns text[]
language plpgsql immutable
set search_path = rouse, pg_temp
as $$
declare
    v_seg    text[] := string_to_array(p_path, '/');
    v_n      integer := cardinality(v_seg);
    v_keys   text[] := '{}';
    v_prefix text := '';
    v_suffix text;
begin
    for i in 0 .. least(v_n, 4) loop
        v_prefix := case when i < 2 then coalesce(v_seg[i], '') else v_prefix || '/' || v_seg[i] end;
        v_suffix := '';
        for j in 0 .. least(v_n - i, 4) loop
            v_suffix := case when j < 2 then coalesce(v_seg[v_n + 1 - j], '') else v_seg[v_n + 1 - j] || '/' || v_suffix end;
            -- No path holds a line feed.
            v_keys := v_keys || (v_prefix || E'\n' || v_suffix);
        end loop;
    end loop;
    return v_keys;
end
$$;
comment on function rouse._glob_keys(text) is 'The keys of all patterns that could match a path.';
