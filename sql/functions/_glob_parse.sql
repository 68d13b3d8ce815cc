-- _glob_parse: what a subscription's pattern means. * stands for exactly one
-- segment, ** for any number of them, none included; everything else is
-- literal, and %2A is a literal asterisk. regex matches a whole path, prefix is
-- the literal beginning, for a range of the streams' index, and pattern is the
-- form in which _glob_find looks for it.
create or replace function rouse._glob_parse(p_pattern text, out pattern text, out regex text, out prefix text)
language plpgsql immutable strict
set search_path = rouse, pg_temp
as $$
declare
    v_seg   text[] := string_to_array(p_pattern, '/');
    v_n     integer;
    v_wild  boolean[];
    v_slash text := '';    -- what goes between the last part and the next
begin
    -- One ** behind another adds nothing.
    select array_agg(x.s in ('*', '**') order by x.n),
           array_agg(case when x.s in ('*', '**') then x.s else regexp_replace(x.s, '%2A', '*', 'gi') end order by x.n),
           count(*)
      into v_wild, v_seg, v_n
      from (select u.s, u.n, lag(u.s) over (order by u.n) as before from unnest(v_seg) with ordinality u (s, n)) x
     where x.s <> '**' or x.before is distinct from '**';
    regex := '';
    for i in 1 .. v_n loop
        if v_wild[i] and v_seg[i] = '**' then
            -- Whole segments with the slash that ties them to what stands before, or, at the beginning, behind.
            regex := regex || case when v_slash <> '' then '(?:/[^/]+)*' when i = v_n then '.*' else '(?:[^/]+/)*' end;
        else
            regex := regex || v_slash || case when v_wild[i] then '[^/]+'
                                              else regexp_replace(v_seg[i], '([][\\.^$*+?(){}|-])', '\\\1', 'g') end;
            v_slash := '/';
        end if;
    end loop;
    regex := '^(?:' || regex || ')$';
    prefix := array_to_string(v_seg[1:coalesce(array_position(v_wild, true) - 1, v_n)], '/');
    select string_agg(case when w.wild then w.s else _glob_literal(w.s) end, '/' order by w.n) into pattern
      from unnest(v_seg, v_wild) with ordinality w (s, wild, n);
end
$$;
comment on function rouse._glob_parse(text) is 'What a subscription''s pattern means.';
