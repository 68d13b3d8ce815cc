-- _observer_moved: takes the mark off a cursor that has read everything. Only
-- under the source's row lock; if somebody else has that, the mark stays for
-- another round. The caller holds the cursor's row.
create or replace function rouse._observer_moved(p_id bigint, p_stream_id bigint, p_acked bigint) returns void
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    perform 1 from streams s where s.id = p_stream_id for no key update skip locked;
    if found or p_stream_id is null then
        update observers o set behind = false
         where o.id = p_id and not exists (select from streams s where s.id = p_stream_id and s.tail > p_acked);
    end if;
end
$$;
comment on function rouse._observer_moved(bigint, bigint, bigint) is 'Takes the mark off a cursor that has read everything.';
