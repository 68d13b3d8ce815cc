-- compat: safe
-- The id of a pool that is gone is not free for everybody: policies still name
-- it, so whoever made another pool of that name would be given their work.

create table rouse.retired_pools (
    service_id      integer not null references rouse.services,
    id              text collate "C" not null,
    owner_principal text collate "C" not null,
    join_generation integer not null,
    retired_at      timestamptz not null default clock_timestamp(),
    constraint retired_pools_pkey primary key (id, service_id)
);
comment on table rouse.retired_pools is 'Ids of worker pools that were removed. Only whoever owned one, and the system, makes it again.';
comment on column rouse.retired_pools.join_generation is 'The pool''s last one: no join token of the old pool is good for a new one.';
