-- _membership_show: brings one entity in a membership stream up to date: appends
-- a row if it has appeared, changed, or is not to be seen any more. Whether it
-- did. The caller holds the membership's row.
create or replace function rouse._membership_show(m rouse.memberships, p_url text, p_now timestamptz) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    e        entities%rowtype;
    v_had    text;
    v_row    jsonb;
    v_digest text;
    v_op     text;
begin
    select x.digest into v_had from membership_members x where x.membership_id = m.id and x.entity_url = p_url;
    select * into e from entities x where x.url = p_url and x.service_id = m.service_id and x.tags @> m.tags;
    if found and (m.trusted or e.created_by = m.principal or _entity_may(m.service_id, e.url, m.principal, 'read', p_now)) then
        v_row := _membership_row(e);
        v_digest := md5(v_row::text);
    end if;
    v_op := case when v_had is null and v_digest is not null then 'insert'
                 when v_digest is null and v_had is not null then 'delete'
                 when v_had <> v_digest then 'update' end;
    if v_op is null then
        return false;
    end if;
    perform _stream_push(m.stream_id,
        '{"headers":{"operation":"' || v_op || '","timestamp":"' || to_char(p_now at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        || '"},"type":"members","key":' || to_json(p_url) || case when v_row is null then '' else ',"value":' || v_row::text end || '}', false);
    if v_op = 'delete' then
        delete from membership_members x where x.membership_id = m.id and x.entity_url = p_url;
    else
        insert into membership_members (membership_id, entity_url, digest) values (m.id, p_url, v_digest)
        on conflict on constraint membership_members_pkey do update set digest = excluded.digest;
        if not e.member then
            update entities x set member = true where x.url = p_url and x.service_id = m.service_id;
        end if;
    end if;
    return true;
end
$$;
comment on function rouse._membership_show(rouse.memberships, text, timestamptz) is 'Brings one entity in a membership stream up to date.';
