-- stream_delete: removes a stream from its clients' sight. While forks read
-- from it, it stays 'gone' and its name taken; otherwise the name is free at
-- once and the rows are removed by stream_purge.
-- Outcomes: deleted | not_found | gone (already, forks still read it) | guarded
-- (a stream of the control plane, and not p_internal).
create or replace function rouse.stream_delete(p_service integer, p_path text, p_internal boolean default false)
returns table (outcome text, stream_id bigint)
language plpgsql
set search_path = rouse, pg_temp
as $$
begin
    return query select * from _stream_delete(p_service, p_path, p_internal, null);
end
$$;
comment on function rouse.stream_delete(integer, text, boolean) is 'Deletes a stream, softly while forks read from it.';
