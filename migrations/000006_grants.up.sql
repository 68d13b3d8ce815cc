-- compat: safe
-- Who may do what beside the owners of entities and entity types: the grants as they were given, and what they come to
-- for each entity, so that a check is one probe whatever the depth of the tree. And the files attached to entities.

create table rouse.entity_grants (
    id               bigint generated always as identity primary key,
    service_id       integer not null,
    entity_url       text collate "C" not null,
    permission       text not null,
    subject_kind     text not null,
    subject_value    text collate "C" not null,
    propagation      text not null default 'self',
    copy_to_children boolean not null default false,
    expires_at       timestamptz,
    created_by       text not null,
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),
    constraint entity_grants_permission_check check (permission in ('read', 'write', 'delete', 'signal', 'fork', 'schedule', 'spawn', 'manage')),
    constraint entity_grants_subject_kind_check check (subject_kind in ('principal', 'principal_kind')),
    constraint entity_grants_propagation_check check (propagation in ('self', 'descendants'))
);
create index entity_grants_entity_url_idx on rouse.entity_grants (entity_url, service_id);
comment on table rouse.entity_grants is 'Permissions given on one entity to a principal or to a kind of principals, for itself or for its descendants too.';
comment on column rouse.entity_grants.subject_value is 'A principal''s URL, or a kind: user, agent, service, system.';
comment on column rouse.entity_grants.copy_to_children is 'A child gets a grant of its own, of the same content, when it is spawned.';

create table rouse.entity_effective_permissions (
    id                bigint generated always as identity primary key,
    service_id        integer not null,
    entity_url        text collate "C" not null,
    source_entity_url text collate "C" not null,
    source_grant_id   bigint not null references rouse.entity_grants on delete cascade,
    permission        text not null,
    subject_kind      text not null,
    subject_value     text collate "C" not null,
    expires_at        timestamptz,
    created_at        timestamptz not null default clock_timestamp(),
    constraint entity_effective_permissions_entity_url_key unique (entity_url, source_grant_id)
);
create index entity_effective_permissions_subject_idx on rouse.entity_effective_permissions (subject_value, permission, entity_url);
create index entity_effective_permissions_source_grant_id_idx on rouse.entity_effective_permissions (source_grant_id);
comment on table rouse.entity_effective_permissions is 'What each grant comes to: one row for the entity, and one for each descendant if it propagates. Written in the transaction of the grant or of the spawn. An expired row counts no more.';

create table rouse.entity_type_grants (
    id            bigint generated always as identity primary key,
    service_id    integer not null,
    entity_type   text collate "C" not null,
    permission    text not null,
    subject_kind  text not null,
    subject_value text collate "C" not null,
    expires_at    timestamptz,
    created_by    text not null,
    created_at    timestamptz not null default clock_timestamp(),
    updated_at    timestamptz not null default clock_timestamp(),
    constraint entity_type_grants_permission_check check (permission in ('spawn', 'manage')),
    constraint entity_type_grants_subject_kind_check check (subject_kind in ('principal', 'principal_kind'))
);
create index entity_type_grants_entity_type_idx on rouse.entity_type_grants (entity_type, service_id);
comment on table rouse.entity_type_grants is 'Who may spawn or manage an entity type beside its registrar.';

insert into rouse.entity_type_grants (service_id, entity_type, permission, subject_kind, subject_value, created_by)
select t.service_id, t.name, g ->> 'permission', g ->> 'subject_kind', g ->> 'subject_value', t.owner_principal
  from rouse.entity_types t, jsonb_array_elements(t.permission_grants) g
 where jsonb_typeof(t.permission_grants) = 'array' and g ->> 'permission' in ('spawn', 'manage')
   and (g ->> 'subject_kind' = 'principal' and g ->> 'subject_value' like '/principal/%'
        or g ->> 'subject_kind' = 'principal_kind' and g ->> 'subject_value' in ('user', 'agent', 'service', 'system'));

create table rouse.entity_attachments (
    service_id  integer not null,
    entity_url  text collate "C" not null,
    id          text collate "C" not null,
    stream_id   bigint not null references rouse.streams,
    manifest    jsonb not null,
    created_at  timestamptz not null default clock_timestamp(),
    constraint entity_attachments_pkey primary key (entity_url, id, service_id)
);
create index entity_attachments_stream_id_idx on rouse.entity_attachments (stream_id);
comment on table rouse.entity_attachments is 'Files of an entity. Their bytes are a closed stream each; the manifest row on the entity''s stream says the same for those who follow it.';

-- Whatever kinds of streams there are by now, attachments are one more.
do $$
declare
    v_check text := (select pg_get_constraintdef(c.oid) from pg_constraint c
                      where c.conrelid = 'rouse.streams'::regclass and c.conname = 'streams_kind_check');
    v_kinds text;
begin
    select string_agg(distinct quote_literal(m[1]), ', ') into v_kinds from regexp_matches(v_check || ', ''attachment''', '''([a-z_-]+)''', 'g') m;
    execute 'alter table rouse.streams drop constraint streams_kind_check, add constraint streams_kind_check check (kind in (' || v_kinds || '))';
end
$$;

-- Their arguments have changed.
drop function if exists rouse.entity_gate(integer[], text[], text[]);
drop function if exists rouse.entity_spawn(integer, text, text, integer, text, boolean, boolean, jsonb, jsonb, text, jsonb, jsonb, text, text, integer, integer);
