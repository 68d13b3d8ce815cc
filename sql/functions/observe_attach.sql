-- observe_attach: cursors whose source did not exist when they were registered
-- begin at its start once it does, if their principal may read it; if not, they
-- are removed. At most p_limit of them, in id order after p_after; answers the
-- last id looked at (null: none) and how many of these wait on.
create or replace function rouse.observe_attach(p_after bigint, p_limit integer)
returns table (last_id bigint, waiting integer)
language plpgsql
set search_path = rouse, pg_temp
set plan_cache_mode = force_generic_plan
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    w        record;
    v_stream bigint;
    v_head   bigint;
    v_may    boolean;
begin
    waiting := 0;
    for w in select o.id, o.service_id, o.source_path, o.principal, o.trusted, o.kind from observers o
              where o.stream_id is null and o.id > p_after order by o.id limit p_limit loop
        last_id := w.id;
        v_may := _observe_readable(w.service_id, w.principal, w.trusted, w.source_path);
        if v_may is null then
            waiting := waiting + 1;
            continue;
        end if;
        if not v_may then
            delete from observers o where o.id = w.id and o.stream_id is null;
            continue;
        end if;
        v_stream := null;
        select s.id, s.head into v_stream, v_head from streams s
         where s.path = w.source_path and s.service_id = w.service_id and s.deleted_at is null for no key update skip locked;
        if v_stream is null then
            waiting := waiting + 1; -- locked at the moment
            continue;
        end if;
        update streams s set watched = s.watched | 2 where s.id = v_stream and s.watched & 2 = 0;
        update observers o set stream_id = v_stream, acked = v_head, behind = true where o.id = w.id and o.stream_id is null;
    end loop;
    return next;
end
$$;
comment on function rouse.observe_attach(bigint, integer) is 'Gives cursors that waited for their source its stream.';
