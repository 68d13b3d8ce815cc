-- compat: safe
-- A runner may have the entries of its wake streams sealed to a key of its own.

alter table rouse.runners
    add column wake_key bytea,
    add constraint runners_wake_key_check check (octet_length(wake_key) = 32);
comment on column rouse.runners.wake_key is 'X25519 public key that the entries of the runner''s wake streams are sealed to as they are read; null: they are served in the clear.';

-- A receiver that ends its claims and acks nothing is told again later each time.

alter table rouse.consumers add column fruitless integer not null default 0;
comment on column rouse.consumers.fruitless is 'How many claims for a push transport have ended, one after the other, with everything left as it was.';
