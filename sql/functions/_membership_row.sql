-- _membership_row: an entity as a membership stream shows it.
create or replace function rouse._membership_row(e rouse.entities) returns jsonb
language sql stable
set search_path = rouse, pg_temp
as $$
    select jsonb_build_object('url', e.url, 'type', e.type, 'status', e.status, 'tags', e.tags, 'spawn_args', e.spawn_args,
        'sandbox', case when e.sandbox ->> 'profile' is not null then jsonb_build_object('profile', e.sandbox ->> 'profile') end,
        'parent', e.parent, 'type_revision', e.type_revision, 'inbox_schemas', e.inbox_schemas, 'state_schemas', e.state_schemas,
        'created_at', floor(extract(epoch from e.created_at) * 1000)::bigint,
        'updated_at', floor(extract(epoch from e.updated_at) * 1000)::bigint)
$$;
comment on function rouse._membership_row(rouse.entities) is 'An entity as a membership stream shows it.';
