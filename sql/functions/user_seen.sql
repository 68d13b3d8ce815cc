-- user_seen: makes the row of a person on first sight (RFC "Minimal user auth
-- and ownership") and keeps what the auth hook tells about them current. A
-- field the hook does not tell (null) keeps its value; nothing is written when
-- nothing changed.
create or replace function rouse.user_seen(
    p_service_id integer, p_id text, p_display_name text, p_email text, p_avatar_url text,
    p_auth_provider text, p_auth_subject text
) returns boolean
language plpgsql
set search_path = rouse, pg_temp
as $$
declare
    v_now timestamptz := clock_timestamp();
begin
    insert into users as u (service_id, id, display_name, email, avatar_url, auth_provider, auth_subject, created_at, updated_at)
    values (p_service_id, p_id, p_display_name, p_email, p_avatar_url, p_auth_provider, p_auth_subject, v_now, v_now)
    on conflict (service_id, id) do nothing;
    if found then
        return true;
    end if;
    update users u
       set display_name = coalesce(p_display_name, u.display_name), email = coalesce(p_email, u.email),
           avatar_url = coalesce(p_avatar_url, u.avatar_url), auth_provider = coalesce(p_auth_provider, u.auth_provider),
           auth_subject = coalesce(p_auth_subject, u.auth_subject), updated_at = v_now
     where u.service_id = p_service_id and u.id = p_id
       and (u.display_name, u.email, u.avatar_url, u.auth_provider, u.auth_subject) is distinct from
           (coalesce(p_display_name, u.display_name), coalesce(p_email, u.email), coalesce(p_avatar_url, u.avatar_url),
            coalesce(p_auth_provider, u.auth_provider), coalesce(p_auth_subject, u.auth_subject));
    return false;
end
$$;
comment on function rouse.user_seen(integer, text, text, text, text, text, text) is 'Makes or refreshes the row of a person; true when it is new.';
