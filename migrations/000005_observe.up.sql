-- compat: safe
-- Observation: who is woken by what happens elsewhere, what is due at a time, and the streams that
-- exist to be observed: shared state, cron ticks, memberships. Nothing here is a timer of a process:
-- what is waited for is a row with a due time.

do $$
declare
    v_check text := (select pg_get_constraintdef(c.oid) from pg_constraint c
                      where c.conrelid = 'rouse.streams'::regclass and c.conname = 'streams_kind_check');
    v_kinds text;
begin
    -- Whatever kinds of streams there are by now, these are three more.
    select string_agg(distinct quote_literal(m[1]), ', ') into v_kinds
      from regexp_matches(v_check || ', ''shared'', ''cron'', ''members''', '''([a-z_-]+)''', 'g') m;
    execute 'alter table rouse.streams drop constraint streams_kind_check, add constraint streams_kind_check check (kind in (' || v_kinds || ')) not valid';
    alter table rouse.streams validate constraint streams_kind_check;
end
$$;

alter table rouse.observers
    alter column stream_id drop not null,
    drop constraint observers_stream_id_fkey,
    add constraint observers_stream_id_fkey foreign key (stream_id) references rouse.streams on delete set null,
    add column source_path      text collate "C" not null,
    add column source_url       text collate "C" not null,
    add column principal        text not null,
    add column trusted          boolean not null default false,
    add column condition        text not null default '',
    add column one_shot         boolean not null default false,
    add column debounce_ms      integer not null default 0,
    add column timeout_ms       integer not null default 0,
    add column include_response boolean not null default true,
    add column manifest_key     text collate "C",
    add column state            text,
    add column due_at           timestamptz,
    add constraint observers_debounce_ms_check check (debounce_ms >= 0),
    add constraint observers_timeout_ms_check check (timeout_ms >= 0);
create unique index observers_registration_key on rouse.observers
    (subscriber_url, source_path, kind, md5(condition), debounce_ms, timeout_ms, one_shot, (coalesce(manifest_key, '')), service_id);
create index observers_due_at_idx on rouse.observers (due_at) where due_at is not null;
create index observers_waiting_idx on rouse.observers (id) where stream_id is null;
comment on column rouse.observers.stream_id is 'Null while the source does not exist; once it does, the cursor begins at its start.';
comment on column rouse.observers.principal is 'On whose behalf the source is read; asked again when a source that was waited for appears.';
comment on column rouse.observers.condition is 'JSON text of the condition as the gateway reads it. Text, since what holders write need not be storable as jsonb.';
comment on column rouse.observers.state is 'JSON text: what a debounce has collected so far.';
comment on column rouse.observers.due_at is 'When the collected changes are told, or, while nothing has matched, when the timeout is.';

create table rouse.scheduled_tasks (
    id           bigint generated always as identity primary key,
    service_id   integer not null,
    kind         text not null,
    due_at       timestamptz,
    planned      boolean not null default true,
    entity_url   text collate "C",
    message      text,
    principal    text,
    trusted      boolean not null default false,
    owner_url    text collate "C",
    manifest_key text collate "C",
    manifest     text,
    producer_id  text collate "C",
    stream_id    bigint references rouse.streams on delete cascade,
    expression   text,
    timezone     text,
    tick_number  bigint not null default 0,
    created_at   timestamptz not null default clock_timestamp(),
    constraint scheduled_tasks_kind_check check (kind in ('delayed_send', 'cron_tick')),
    constraint scheduled_tasks_sense_check check (case kind
        when 'delayed_send' then entity_url is not null and message is not null and principal is not null
                             and (owner_url is null) = (manifest_key is null)
        else stream_id is not null and expression is not null and timezone is not null end)
) with (fillfactor = 70);
create index scheduled_tasks_due_at_idx on rouse.scheduled_tasks (due_at) where due_at is not null;
create unique index scheduled_tasks_owner_url_manifest_key_key on rouse.scheduled_tasks (owner_url, manifest_key, service_id)
    where owner_url is not null;
create unique index scheduled_tasks_producer_id_key on rouse.scheduled_tasks (producer_id, entity_url, service_id)
    where owner_url is null;
create unique index scheduled_tasks_stream_id_key on rouse.scheduled_tasks (stream_id) where stream_id is not null;
comment on table rouse.scheduled_tasks is 'What is to happen at a time: a message is sent, or a cron stream ticks. A send''s row goes with it; a cron''s stays for its tick number, without a due time while nobody listens.';
comment on column rouse.scheduled_tasks.planned is 'False: due_at is when somebody began to listen, and the first tick is still to be found.';
comment on column rouse.scheduled_tasks.message is 'JSON text of the message''s parts; text for the reason of observers.condition.';

create table rouse.shared_state_links (
    service_id   integer not null,
    path         text collate "C" not null,
    entity_url   text collate "C" not null,
    manifest_key text collate "C" not null default '',
    created_at   timestamptz not null default clock_timestamp(),
    constraint shared_state_links_pkey primary key (path, entity_url, manifest_key, service_id)
);
create index shared_state_links_entity_url_idx on rouse.shared_state_links (entity_url, manifest_key);
comment on table rouse.shared_state_links is 'Entities a shared state belongs to: who may read or write one of them may read or write it.';

alter table rouse.services add column memberships boolean not null default false;
comment on column rouse.services.memberships is 'Somebody observes which entities have certain tags: changes of entities are told in membership_changes.';
alter table rouse.entities add column member boolean not null default false;
comment on column rouse.entities.member is 'A membership stream shows the entity, so its changes are told.';

create table rouse.memberships (
    id         bigint generated always as identity primary key,
    service_id integer not null,
    ref        text collate "C" not null,
    stream_id  bigint not null references rouse.streams on delete cascade,
    tags       jsonb not null,
    principal  text not null,
    trusted    boolean not null default false,
    checked_at timestamptz,
    touched_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    constraint memberships_ref_key unique (ref, service_id)
);
create index memberships_stream_id_idx on rouse.memberships (stream_id);
create index memberships_checked_at_idx on rouse.memberships (checked_at nulls first, id);
comment on column rouse.memberships.touched_at is 'When somebody asked for it last, within an hour.';
comment on table rouse.memberships is 'A stream of the entities that have certain tags and that a principal may read.';

create table rouse.membership_members (
    membership_id bigint not null references rouse.memberships on delete cascade,
    entity_url    text collate "C" not null,
    digest        text not null,
    constraint membership_members_pkey primary key (membership_id, entity_url)
);
create index membership_members_entity_url_idx on rouse.membership_members (entity_url);
comment on table rouse.membership_members is 'What a membership stream shows at its tail.';

create table rouse.membership_changes (
    id         bigint generated always as identity primary key,
    service_id integer not null,
    entity_url text collate "C" not null
);
comment on table rouse.membership_changes is 'Entities whose membership is to be looked at again; written in the transaction of their change.';

-- Functions come after all migrations; this one's text, which a trigger needs before, is in sql/functions.
create function rouse.t100_entity_changed() returns trigger language plpgsql as 'begin return null; end';
create trigger t100_entity_spawned after insert on rouse.entities
    for each row execute function rouse.t100_entity_changed();
create trigger t100_entity_changed after update on rouse.entities
    for each row when (new.member and new.status is distinct from old.status or new.tags is distinct from old.tags)
    execute function rouse.t100_entity_changed();
