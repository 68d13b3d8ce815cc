-- compat: safe
-- Worker pools, policies of several targets, work that is given up for a person to look at, and the handing over of what is held.

create table rouse.worker_pools (
    service_id       integer not null references rouse.services,
    id               text collate "C" not null,
    owner_principal  text collate "C" not null,
    name             text not null,
    admin_status     text not null default 'enabled',
    wake_stream      text collate "C" not null,
    max_concurrent_claims_per_runner integer,
    max_total_claims integer,
    join_generation  integer not null default 1,
    created_at       timestamptz not null default clock_timestamp(),
    updated_at       timestamptz not null default clock_timestamp(),
    constraint worker_pools_pkey primary key (id, service_id),
    constraint worker_pools_admin_status_check check (admin_status in ('enabled', 'disabled')),
    constraint worker_pools_max_concurrent_claims_per_runner_check check (max_concurrent_claims_per_runner between 1 and 1024),
    constraint worker_pools_max_total_claims_check check (max_total_claims between 1 and 100000)
);
create index worker_pools_owner_principal_idx on rouse.worker_pools (owner_principal, id);
comment on table rouse.worker_pools is 'A group of runners that race for the wakes of one shared wake stream (RFC "Worker pools"). The limits are counted from live claims.';
comment on column rouse.worker_pools.join_generation is 'Join tokens name it; one more, and those made before it have ended.';

create table rouse.worker_pool_members (
    service_id      integer not null,
    pool_id         text collate "C" not null,
    runner_id       text collate "C" not null,
    owner_principal text collate "C" not null,
    status          text not null,
    accepted        boolean not null default false,
    disabled_by     text,
    added_by        text not null,
    created_at      timestamptz not null default clock_timestamp(),
    updated_at      timestamptz not null default clock_timestamp(),
    constraint worker_pool_members_pkey primary key (pool_id, runner_id, service_id),
    constraint worker_pool_members_status_check check (status in ('invited', 'active', 'disabled')),
    constraint worker_pool_members_accepted_check check (accepted or status <> 'active')
);
create index worker_pool_members_runner_id_idx on rouse.worker_pool_members (runner_id);
create index worker_pool_members_owner_principal_idx on rouse.worker_pool_members (owner_principal, pool_id);
comment on table rouse.worker_pool_members is 'Runners of a pool. Active takes both owners'' word: the pool''s invites, by name or by a join token, the runner''s accepts.';
comment on column rouse.worker_pool_members.owner_principal is 'The runner''s owner.';
comment on column rouse.worker_pool_members.accepted is 'The runner''s owner has agreed.';
comment on column rouse.worker_pool_members.disabled_by is 'Who disabled it: a runner''s owner undoes only what they did themselves.';

alter table rouse.consumers
    add column pool_id       text collate "C",
    add column target_index  smallint not null default 0,
    add column attempts      integer not null default 0,
    add column routed        boolean not null default false,
    add column look_at       timestamptz,
    add column parked_at     timestamptz,
    add column parked_reason text,
    add column release_by    timestamptz,
    add constraint consumers_parked_check check (parked_at is null or parked_reason is not null and paused);
create index consumers_parked_idx on rouse.consumers (entity_url) where parked_at is not null;
comment on column rouse.consumers.pool_id is 'The worker pool the current wake or claim is for.';
comment on column rouse.consumers.target_index is 'Which target of the policy the current wake is for, and where the next one begins to look; 0 again after progress.';
comment on column rouse.consumers.attempts is 'Wakes minted since progress: since an ack moved the cursor or a run ended well.';
comment on column rouse.consumers.routed is 'The current wake''s policy has more to it than one target: claim_reap judges when it moves on or is given up.';
comment on column rouse.consumers.parked_at is 'Given up since; a person redrives it. Paused as long.';
comment on column rouse.consumers.release_by is 'The holder was asked to hand over: no lease goes beyond this.';
comment on column rouse.consumers.look_at is 'The runner or pool was full when the current wake was asked for: when claim_reap looks next whether there is room, and tells the wake again.';

alter table rouse.consumer_claims add column pool_id text collate "C";
create index consumer_claims_pool_id_active_idx on rouse.consumer_claims (pool_id) where status = 'active' and pool_id is not null;

alter table rouse.wake_notifications
    add column target_pool_id text collate "C",
    add column target_index   smallint not null default 0,
    add column attempt        integer not null default 1;
create index wake_notifications_target_pool_id_open_idx on rouse.wake_notifications (target_pool_id, created_at)
    where resolved_at is null and target_pool_id is not null;
comment on column rouse.wake_notifications.target_index is 'Which target of the policy it is for.';
comment on column rouse.wake_notifications.attempt is 'The how-manieth wake since progress.';

create table rouse.entity_policy_history (
    service_id      integer not null,
    entity_url      text collate "C" not null,
    revision        integer not null,
    dispatch_policy jsonb,
    moved_by        text not null,
    reason          text,
    replaced_at     timestamptz not null,
    constraint entity_policy_history_pkey primary key (entity_url, revision, service_id)
);
comment on table rouse.entity_policy_history is 'The dispatch policies that an entity had before, oldest revision first.';

alter type rouse.claim_answer add attribute release_by timestamptz;
alter type rouse.claim_verdict add attribute runner text;

-- UIs sync pools as they sync runners. Columns of a table in a publication are listed anew as a whole.
alter table rouse.worker_pools replica identity full;
alter table rouse.worker_pool_members replica identity full;
alter publication rouse_rows drop table rouse.wake_notifications, rouse.consumer_claims;
alter publication rouse_rows add table rouse.worker_pools, rouse.worker_pool_members,
    rouse.wake_notifications (service_id, wake_id, entity_url, target_type, target_runner_id, target_webhook_url, target,
        runner_wake_stream, runner_wake_stream_offset, notification_public, delivery_status, claim_status,
        created_at, delivered_at, claimed_at, resolved_at, target_pool_id, target_index, attempt),
    rouse.consumer_claims (service_id, consumer_id, epoch, wake_id, entity_url, stream_path, runner_id, status,
        claimed_at, last_heartbeat_at, lease_expires_at, released_at, acked_streams, updated_at, pool_id);
