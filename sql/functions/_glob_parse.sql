-- _glob_parse: what a subscription's pattern means. * stands for exactly one
-- segment, ** for any number of them, none included; everything else is
-- literal, and %2A is a literal asterisk. regex matches a whole path; key,
-- segments and deep say which paths need not be tried (subscription_globs);
-- prefix is the literal beginning, for a range of the streams' index.
create or replace function rouse._glob_parse(p_pattern text, out key text, out segments integer, out deep boolean, out regex text, out prefix text)
language plpgsql immutable strict
set search_path = rouse, pg_temp
as $$
declare
    v_seg   text[] := string_to_array(p_pattern, '/');
    v_n     integer;
    v_wild  boolean[];
    v_first integer;
    v_last  integer;
    v_body  text := '';
    v_slash text := '';    -- what goes between the last part and the next
begin
    -- One ** behind another adds nothing.
    select array_agg(x.s in ('*', '**') order by x.n),
           array_agg(case when x.s in ('*', '**') then x.s else regexp_replace(x.s, '%2A', '*', 'gi') end order by x.n),
           count(*)
      into v_wild, v_seg, v_n
      from (select u.s, u.n, lag(u.s) over (order by u.n) as before from unnest(v_seg) with ordinality u (s, n)) x
     where x.s <> '**' or x.before is distinct from '**';
    v_first := array_position(v_wild, true);
    v_last := (select max(i) from generate_subscripts(v_wild, 1) i where v_wild[i]);
    segments := 0;
    deep := false;
    for i in 1 .. v_n loop
        if v_wild[i] and v_seg[i] = '**' then
            deep := true;
            -- Whole segments with the slash that ties them to what stands before, or, at the beginning, behind.
            if i = v_n then
                v_body := v_body || case when v_slash = '' then '.*' else '(?:/[^/]+)*' end;
            elsif v_slash = '' then
                v_body := v_body || '(?:[^/]+/)*';
            else
                v_body := v_body || '(?:/[^/]+)*';
            end if;
        else
            segments := segments + 1;
            v_body := v_body || v_slash || case when v_wild[i] then '[^/]+'
                                                else regexp_replace(v_seg[i], '([][\\.^$*+?(){}|-])', '\\\1', 'g') end;
            v_slash := '/';
        end if;
    end loop;
    regex := '^(?:' || v_body || ')$';
    prefix := array_to_string(v_seg[1:coalesce(v_first - 1, v_n)], '/');
    key := array_to_string(v_seg[1:least(coalesce(v_first - 1, v_n), 4)], '/') || E'\n'
        || array_to_string(v_seg[greatest(coalesce(v_last, v_n) + 1, v_n - 3):v_n], '/');
end
$$;
comment on function rouse._glob_parse(text) is 'What a subscription''s pattern means.';
