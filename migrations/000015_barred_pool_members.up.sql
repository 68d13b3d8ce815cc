-- compat: safe
-- Whom a pool's owner has taken out comes back by the owner's word alone: a join token that is still good for others is not.

create table rouse.barred_pool_members (
    service_id integer not null references rouse.services,
    pool_id    text collate "C" not null,
    runner_id  text collate "C" not null,
    barred_at  timestamptz not null default clock_timestamp(),
    constraint barred_pool_members_pkey primary key (pool_id, runner_id, service_id)
);
comment on table rouse.barred_pool_members is 'Runners that a worker pool''s owner has taken out. No join token lets them in again until the owner adds them by name or ends the tokens.';
