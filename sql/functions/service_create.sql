-- service_create: makes a scope. Outcomes: created, exists, invalid.
create or replace function rouse.service_create(p_name text, p_principal text)
returns table (outcome text, service_id integer, created_at timestamptz)
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_row services;
begin
    if p_name !~ '^[a-z0-9][a-z0-9._-]{0,62}$' then
        return query select 'invalid', null::integer, null::timestamptz;
        return;
    end if;
    insert into services (name) values (p_name) on conflict (name) do nothing returning * into v_row;
    if not found then
        return query select 'exists', s.id, s.created_at from services s where s.name = p_name;
        return;
    end if;
    perform audit_add(v_row.id, p_principal, 'service.create', p_name, null);
    return query select 'created', v_row.id, v_row.created_at;
end
$$;
comment on function rouse.service_create(text, text) is 'Makes a service, the scope that ?service= selects.';
