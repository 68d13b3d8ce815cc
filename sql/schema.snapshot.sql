-- What a fresh database holds. Written by `make generate`; reviewed, never edited.

CREATE SCHEMA rouse;

CREATE TYPE rouse.claim_answer AS (
	outcome text,
	consumer_id bigint,
	consumer_name text,
	epoch bigint,
	wake_id uuid,
	holder text,
	runner_id text,
	lease_ms bigint,
	entity_url text,
	entity_status text,
	stream_path text,
	next_wake boolean,
	notification jsonb,
	release_by timestamp with time zone
);

CREATE TYPE rouse.claim_op AS (
	ord integer,
	op text,
	service integer,
	id bigint,
	consumer text,
	wake uuid,
	epoch bigint,
	holder text,
	runner text,
	claim_id text,
	trusted boolean,
	proved boolean,
	acks jsonb,
	error text,
	busy boolean
);

CREATE DOMAIN rouse.claim_status AS text
	CONSTRAINT claim_status_check CHECK ((VALUE = ANY (ARRAY['active'::text, 'released'::text, 'expired'::text, 'failed'::text])));

CREATE TYPE rouse.claim_verdict AS (
	id bigint,
	effect text,
	holder text,
	claim_id text,
	streams bigint[],
	positions bigint[],
	acked jsonb,
	pending boolean,
	status text,
	error text,
	next_wake boolean,
	entity_status text,
	runner text
);

CREATE DOMAIN rouse.consumer_state AS text
	CONSTRAINT consumer_state_check CHECK ((VALUE = ANY (ARRAY['idle'::text, 'waking'::text, 'claimed'::text, 'stopped'::text])));

CREATE DOMAIN rouse.entity_status AS text
	CONSTRAINT entity_status_check CHECK ((VALUE = ANY (ARRAY['spawning'::text, 'running'::text, 'idle'::text, 'paused'::text, 'stopping'::text, 'stopped'::text, 'killed'::text])));

CREATE DOMAIN rouse.wake_claim_status AS text
	CONSTRAINT wake_claim_status_check CHECK ((VALUE = ANY (ARRAY['unclaimed'::text, 'claimed'::text, 'completed'::text, 'expired'::text])));

CREATE DOMAIN rouse.wake_delivery_status AS text
	CONSTRAINT wake_delivery_status_check CHECK ((VALUE = ANY (ARRAY['queued'::text, 'delivered'::text, 'failed'::text, 'superseded'::text])));

CREATE FUNCTION rouse._attachment_main(p_service_id integer, p_url text, p_principal text, OUT refusal text, OUT main_id bigint) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._attachment_main(p_service_id integer, p_url text, p_principal text, OUT refusal text, OUT main_id bigint) IS 'Locks the stream of an entity whose attachments change, and says who may not change them.';

CREATE FUNCTION rouse._claim_apply(p_ops jsonb, p_wait boolean, p_now timestamp with time zone) RETURNS TABLE(ord integer, answer rouse.claim_answer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse._claim_apply(p_ops jsonb, p_wait boolean, p_now timestamp with time zone) IS 'claim_apply at a chosen time, for tests.';

CREATE TABLE rouse.consumers (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    entity_url text COLLATE pg_catalog."C",
    policy text DEFAULT 'electric'::text NOT NULL COLLATE pg_catalog."C",
    lease_ttl_ms integer DEFAULT 30000 NOT NULL,
    wake_ttl_ms integer DEFAULT 30000 NOT NULL,
    state rouse.consumer_state DEFAULT 'idle'::text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    wake_id uuid,
    holder text,
    runner_id text COLLATE pg_catalog."C",
    claim_id text,
    claimed_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    told_at timestamp with time zone,
    due_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    turn bigint,
    pool_id text COLLATE pg_catalog."C",
    target_index smallint DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    routed boolean DEFAULT false NOT NULL,
    look_at timestamp with time zone,
    parked_at timestamp with time zone,
    parked_reason text,
    release_by timestamp with time zone,
    fruitless integer DEFAULT 0 NOT NULL,
    CONSTRAINT consumers_parked_check CHECK (((parked_at IS NULL) OR ((parked_reason IS NOT NULL) AND paused))),
    CONSTRAINT consumers_state_check CHECK ((((wake_id IS NOT NULL) = ((state)::text = ANY (ARRAY['waking'::text, 'claimed'::text]))) AND ((lease_expires_at IS NOT NULL) = ((state)::text = 'claimed'::text)) AND ((due_at IS NOT NULL) OR ((state)::text <> ALL (ARRAY['waking'::text, 'claimed'::text])))))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

COMMENT ON TABLE rouse.consumers IS 'What one holder at a time may hold: the RFC''s consumer mutex. Its policy lets one-shot work use the same mechanism.';

COMMENT ON COLUMN rouse.consumers.epoch IS 'Fencing token. Minted with the wake, granted by the acquire, never reused.';

COMMENT ON COLUMN rouse.consumers.runner_id IS 'The runner the current wake or claim is for.';

COMMENT ON COLUMN rouse.consumers.told_at IS 'When the current wake was last told.';

COMMENT ON COLUMN rouse.consumers.due_at IS 'When claim_reap looks again, at the latest: never after a lease''s end or an unclaimed wake''s redelivery, often before. Moved by claim_reap only, so that the hot path changes no indexed column.';

COMMENT ON COLUMN rouse.consumers.turn IS 'Of a subscription: the stream the last wake was for. The next begins behind it, so that a busy stream starves no other.';

COMMENT ON COLUMN rouse.consumers.pool_id IS 'The worker pool the current wake or claim is for.';

COMMENT ON COLUMN rouse.consumers.target_index IS 'Which target of the policy the current wake is for, and where the next one begins to look; 0 again after progress.';

COMMENT ON COLUMN rouse.consumers.attempts IS 'Wakes minted since progress: since an ack moved the cursor or a run ended well.';

COMMENT ON COLUMN rouse.consumers.routed IS 'The current wake''s policy has more to it than one target: claim_reap judges when it moves on or is given up.';

COMMENT ON COLUMN rouse.consumers.look_at IS 'The runner or pool was full when the current wake was asked for: when claim_reap looks next whether there is room, and tells the wake again.';

COMMENT ON COLUMN rouse.consumers.parked_at IS 'Given up since; a person redrives it. Paused as long.';

COMMENT ON COLUMN rouse.consumers.release_by IS 'The holder was asked to hand over: no lease goes beyond this.';

COMMENT ON COLUMN rouse.consumers.fruitless IS 'How many claims for a push transport have ended, one after the other, with everything left as it was.';

CREATE FUNCTION rouse._claim_fence(p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_now timestamp with time zone) RETURNS text
    LANGUAGE … IMMUTABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_fence(p_consumer rouse.consumers, p_epoch bigint, p_wake uuid, p_now timestamp with time zone) IS 'Whether a claim is the live one at a chosen time.';

CREATE FUNCTION rouse._claim_find(p_ops jsonb, p_wait boolean) RETURNS rouse.claim_op[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_find(p_ops jsonb, p_wait boolean) IS 'Reads a batch of mutex calls, finds and locks their consumers.';

CREATE FUNCTION rouse._claim_moved(c rouse.consumers, p_streams bigint[]) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_moved(c rouse.consumers, p_streams bigint[]) IS 'Whether a claim has got ahead.';

CREATE FUNCTION rouse._claim_over(p_service_id integer, p_consumer text, p_epoch bigint, p_granted text[], p_now timestamp with time zone) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_over(p_service_id integer, p_consumer text, p_epoch bigint, p_granted text[], p_now timestamp with time zone) IS 'Whether a lapsed claim can not be extended any more.';

CREATE FUNCTION rouse._claim_reap(p_limit integer, p_now timestamp with time zone) RETURNS TABLE(expired integer, redelivered integer, moved integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._claim_reap(p_limit integer, p_now timestamp with time zone) IS 'Ends lapsed claims and redelivers unclaimed wakes at a chosen time.';

CREATE FUNCTION rouse._claim_room(p_service_id integer, p_runner text, p_pool text, p_granted text[], p_wait boolean, p_now timestamp with time zone) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_room(p_service_id integer, p_runner text, p_pool text, p_granted text[], p_wait boolean, p_now timestamp with time zone) IS 'Whether a runner, and a pool, have room for one more claim.';

CREATE FUNCTION rouse._claim_seek(p_op rouse.claim_op, p_wait boolean, p_now timestamp with time zone) RETURNS rouse.claim_op
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_seek(p_op rouse.claim_op, p_wait boolean, p_now timestamp with time zone) IS 'Names and locks what waits for a runner.';

CREATE FUNCTION rouse._claim_seek_pools(p_op rouse.claim_op, p_pools text[], p_wait boolean, p_now timestamp with time zone) RETURNS rouse.claim_op
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_seek_pools(p_op rouse.claim_op, p_pools text[], p_wait boolean, p_now timestamp with time zone) IS 'Names and locks what waits for a runner or for its pools.';

CREATE FUNCTION rouse._claim_write(p_verdicts rouse.claim_verdict[], p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._claim_write(p_verdicts rouse.claim_verdict[], p_now timestamp with time zone) IS 'Carries out verdicts on locked consumers at a chosen time.';

CREATE FUNCTION rouse._consumer_park(p_consumer rouse.consumers, p_reason text, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._consumer_park(p_consumer rouse.consumers, p_reason text, p_now timestamp with time zone) IS 'Gives up waking a consumer until somebody redrives it.';

CREATE FUNCTION rouse._consumer_pause(p_consumer_id bigint, p_paused boolean, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._consumer_pause(p_consumer_id bigint, p_paused boolean, p_now timestamp with time zone) IS 'Stops or restarts the waking of a consumer.';

CREATE FUNCTION rouse._consumer_pending(p_consumer_id bigint) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._consumer_pending(p_consumer_id bigint) IS 'Whether a consumer has unacked work.';

CREATE FUNCTION rouse._consumer_stop(p_consumer_id bigint, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._consumer_stop(p_consumer_id bigint, p_now timestamp with time zone) IS 'Ends whatever is held or outstanding and refuses later claims.';

CREATE FUNCTION rouse._consumer_unpark(p_consumer rouse.consumers, p_reason text, p_now timestamp with time zone) RETURNS uuid
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._consumer_unpark(p_consumer rouse.consumers, p_reason text, p_now timestamp with time zone) IS 'Lets a parked consumer be woken again.';

CREATE FUNCTION rouse._cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) IS 'Makes a cron stream and sees that it ticks.';

CREATE FUNCTION rouse._delivery_lend(p_limit integer, p_each integer, p_room jsonb, p_now timestamp with time zone) RETURNS TABLE(service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint, attempt integer, target jsonb, notification jsonb, lease_ms integer, receiver text, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._delivery_lend(p_limit integer, p_each integer, p_room jsonb, p_now timestamp with time zone) IS 'Lends due wakes to a delivery worker at a chosen time, each receiver''s up to its room.';

CREATE FUNCTION rouse._delivery_result(p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint, p_status_code integer, p_error text, p_now timestamp with time zone) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._delivery_result(p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint, p_status_code integer, p_error text, p_now timestamp with time zone) IS 'Records how a delivery attempt ended, at a chosen time.';

CREATE FUNCTION rouse._dispatch_act(p_consumer rouse.consumers, p_now timestamp with time zone, OUT acted text, OUT wake uuid) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._dispatch_act(p_consumer rouse.consumers, p_now timestamp with time zone, OUT acted text, OUT wake uuid) IS 'Lets a waiting wake stay, move on or be given up, at a chosen time.';

CREATE FUNCTION rouse._dispatch_judge(p_consumer rouse.consumers, p_now timestamp with time zone, OUT verdict text, OUT target integer, OUT reason text, OUT due_at timestamp with time zone, OUT state text) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._dispatch_judge(p_consumer rouse.consumers, p_now timestamp with time zone, OUT verdict text, OUT target integer, OUT reason text, OUT due_at timestamp with time zone, OUT state text) IS 'Whether a waiting wake stays, moves on or is given up, at a chosen time.';

CREATE FUNCTION rouse._dispatch_links(p_streams bigint[], OUT outcomes jsonb, OUT idle bigint[], OUT pushed uuid[]) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._dispatch_links(p_streams bigint[], OUT outcomes jsonb, OUT idle bigint[], OUT pushed uuid[]) IS 'The subscriptions to be woken for streams that they watch.';

CREATE FUNCTION rouse._dispatch_route(p_streams bigint[], p_positions bigint[], p_now timestamp with time zone) RETURNS TABLE(stream_id bigint, outcome text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._dispatch_route(p_streams bigint[], p_positions bigint[], p_now timestamp with time zone) IS 'dispatch_route at a chosen time, for tests.';

CREATE FUNCTION rouse._entity_allowed(p_service_id integer, p_principal text, p_permission text, p_urls text[], p_now timestamp with time zone) RETURNS SETOF text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._entity_allowed(p_service_id integer, p_principal text, p_permission text, p_urls text[], p_now timestamp with time zone) IS 'entity_allowed at a chosen time.';

CREATE FUNCTION rouse._entity_close(p_consumer rouse.consumers, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_close(p_consumer rouse.consumers, p_now timestamp with time zone) IS 'Completes a requested stop when the claim ends.';

CREATE FUNCTION rouse._entity_main(p_service_id integer, p_url text) RETURNS bigint
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_main(p_service_id integer, p_url text) IS 'The main stream of an entity.';

CREATE FUNCTION rouse._entity_may(p_service_id integer, p_url text, p_principal text, p_permission text, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_may(p_service_id integer, p_url text, p_principal text, p_permission text, p_now timestamp with time zone) IS 'Whether a grant gives a principal a permission on an entity.';

CREATE FUNCTION rouse._entity_move(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text, p_now timestamp with time zone) RETURNS TABLE(outcome text, txid bigint, release_by timestamp with time zone)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_move(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text, p_now timestamp with time zone) IS 'entity_move at a chosen time; null reads the clock behind the locks.';

CREATE TABLE rouse.entities (
    service_id integer NOT NULL,
    url text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL COLLATE pg_catalog."C",
    status rouse.entity_status DEFAULT 'idle'::text NOT NULL,
    dispatch_policy jsonb,
    tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    spawn_args jsonb DEFAULT '{}'::jsonb NOT NULL,
    sandbox jsonb,
    parent text COLLATE pg_catalog."C",
    created_by text NOT NULL,
    type_revision integer,
    inbox_schemas jsonb,
    state_schemas jsonb,
    consumer_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    member boolean DEFAULT false NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02');

COMMENT ON TABLE rouse.entities IS 'Addressable things with one owner at a time; the url is the id (RFC entities).';

COMMENT ON COLUMN rouse.entities.member IS 'A membership stream shows the entity, so its changes are told.';

CREATE FUNCTION rouse._entity_parent(p_service_id integer, p_url text, p_principal text, OUT refusal text, OUT parent rouse.entities) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_parent(p_service_id integer, p_url text, p_principal text, OUT refusal text, OUT parent rouse.entities) IS 'The entity that another is to become the child of, or why it may not.';

CREATE FUNCTION rouse._entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_now timestamp with time zone) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_now timestamp with time zone) IS 'entity_redrive at a chosen time; null reads the clock behind the lock.';

CREATE FUNCTION rouse._entity_root(p_service_id integer, p_url text, p_shared boolean) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_root(p_service_id integer, p_url text, p_shared boolean) IS 'Locks the tree of an entity and returns its root.';

CREATE FUNCTION rouse._entity_signal(p_entity rouse.entities, p_consumer rouse.consumers, p_stream_id bigint, p_principal text, p_signal text, p_key text, p_reason text, p_payload jsonb, p_now timestamp with time zone) RETURNS TABLE(outcome text, txid bigint, previous_state text, new_state text, created_at timestamp with time zone)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_signal(p_entity rouse.entities, p_consumer rouse.consumers, p_stream_id bigint, p_principal text, p_signal text, p_key text, p_reason text, p_payload jsonb, p_now timestamp with time zone) IS 'Decides a signal at a chosen time, under the locks.';

CREATE FUNCTION rouse._entity_transition(p_signal text, p_status text, p_held boolean, OUT new_status text, OUT handled boolean, OUT ends boolean) RETURNS record
    LANGUAGE … IMMUTABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_transition(p_signal text, p_status text, p_held boolean, OUT new_status text, OUT handled boolean, OUT ends boolean) IS 'The status a signal leads to.';

CREATE FUNCTION rouse._entity_type_may(p_service_id integer, p_name text, p_principal text, p_permission text, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._entity_type_may(p_service_id integer, p_name text, p_principal text, p_permission text, p_now timestamp with time zone) IS 'Whether a grant gives a principal a permission on an entity type.';

CREATE FUNCTION rouse._epoch_floor(p_timeline integer DEFAULT NULL::integer) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._epoch_floor(p_timeline integer) IS 'The lowest epoch that a wake may have that is made or granted now.';

CREATE FUNCTION rouse._epochs_raise(p_reason text, p_timeline integer, p_always boolean) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._epochs_raise(p_reason text, p_timeline integer, p_always boolean) IS 'Makes the floor of epochs for a timeline.';

CREATE FUNCTION rouse._fruitless_wait(p_fruitless integer) RETURNS interval
    LANGUAGE … IMMUTABLE
    AS …;

COMMENT ON FUNCTION rouse._fruitless_wait(p_fruitless integer) IS 'The wait before a receiver that makes no progress is told again.';

CREATE FUNCTION rouse._glob_find(p_service integer, p_path text) RETURNS TABLE(consumer_id bigint, owner text, system boolean)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._glob_find(p_service integer, p_path text) IS 'The subscriptions whose pattern matches a path.';

CREATE FUNCTION rouse._glob_literal(p_segment text) RETURNS text
    LANGUAGE … IMMUTABLE STRICT PARALLEL SAFE
    AS …;

COMMENT ON FUNCTION rouse._glob_literal(p_segment text) IS 'A literal segment of a stored pattern.';

CREATE FUNCTION rouse._glob_parse(p_pattern text, OUT pattern text, OUT regex text, OUT prefix text) RETURNS record
    LANGUAGE … IMMUTABLE STRICT
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._glob_parse(p_pattern text, OUT pattern text, OUT regex text, OUT prefix text) IS 'What a subscription''s pattern means.';

CREATE FUNCTION rouse._glob_sees(p_path text) RETURNS boolean
    LANGUAGE … IMMUTABLE STRICT PARALLEL SAFE
    AS …;

COMMENT ON FUNCTION rouse._glob_sees(p_path text) IS 'Whether a path is one that patterns match.';

CREATE FUNCTION rouse._grant_add(p_service_id integer, p_url text, p_by text, p_now timestamp with time zone, p_grants jsonb) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._grant_add(p_service_id integer, p_url text, p_by text, p_now timestamp with time zone, p_grants jsonb) IS 'Adds grants and what they come to.';

CREATE FUNCTION rouse._grant_inherit(p_service_id integer, p_child text, p_parent text, p_by text, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._grant_inherit(p_service_id integer, p_child text, p_parent text, p_by text, p_now timestamp with time zone) IS 'Gives a new child what its parent''s grants say.';

CREATE FUNCTION rouse._grant_type_ensure(p_service_id integer, p_name text, p_by text, p_grants jsonb, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._grant_type_ensure(p_service_id integer, p_name text, p_by text, p_grants jsonb, p_now timestamp with time zone) IS 'Adds the grants of a registration.';

CREATE FUNCTION rouse._leases_clip(p_now timestamp with time zone) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._leases_clip(p_now timestamp with time zone) IS 'leases_clip at a chosen time, for tests.';

CREATE TABLE rouse.memberships (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    ref text NOT NULL COLLATE pg_catalog."C",
    stream_id bigint NOT NULL,
    tags jsonb NOT NULL,
    principal text NOT NULL,
    trusted boolean DEFAULT false NOT NULL,
    checked_at timestamp with time zone,
    touched_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.memberships IS 'A stream of the entities that have certain tags and that a principal may read.';

COMMENT ON COLUMN rouse.memberships.touched_at IS 'When somebody asked for it last, within an hour.';

CREATE FUNCTION rouse._membership_compare(m rouse.memberships, p_limit integer) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._membership_compare(m rouse.memberships, p_limit integer) IS 'Brings a membership stream nearer to the entities there are.';

CREATE FUNCTION rouse._membership_lock(p_service_id integer) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._membership_lock(p_service_id integer) IS 'Lets one write the membership streams of a service.';

CREATE FUNCTION rouse._membership_row(e rouse.entities) RETURNS jsonb
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._membership_row(e rouse.entities) IS 'An entity as a membership stream shows it.';

CREATE FUNCTION rouse._membership_show(m rouse.memberships, p_url text, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._membership_show(m rouse.memberships, p_url text, p_now timestamp with time zone) IS 'Brings one entity in a membership stream up to date.';

CREATE FUNCTION rouse._notice(p_stream_id bigint, p_tail bigint, p_flags integer) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._notice(p_stream_id bigint, p_tail bigint, p_flags integer) IS 'Emits one transactional notice for the log feed.';

CREATE FUNCTION rouse._observe_readable(p_service_id integer, p_principal text, p_trusted boolean, p_path text) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._observe_readable(p_service_id integer, p_principal text, p_trusted boolean, p_path text) IS 'Whether a principal may observe a stream.';

CREATE FUNCTION rouse._observe_source(p_service_id integer, p_url text) RETURNS text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._observe_source(p_service_id integer, p_url text) IS 'The path of the stream that a source''s url means.';

CREATE FUNCTION rouse._observer_gone(p_streams bigint[]) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._observer_gone(p_streams bigint[]) IS 'Takes the bit for observers off streams that have none any more.';

CREATE FUNCTION rouse._observer_moved(p_id bigint, p_stream_id bigint, p_acked bigint) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._observer_moved(p_id bigint, p_stream_id bigint, p_acked bigint) IS 'Takes the mark off a cursor that has read everything.';

CREATE FUNCTION rouse._observer_put(p_service_id integer, p_kind text, p_subscriber text, p_path text, p_url text, p_principal text, p_trusted boolean, p_condition text, p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text, p_now timestamp with time zone) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._observer_put(p_service_id integer, p_kind text, p_subscriber text, p_path text, p_url text, p_principal text, p_trusted boolean, p_condition text, p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text, p_now timestamp with time zone) IS 'Registers a cursor over a source for an entity; the same registration again changes nothing.';

CREATE FUNCTION rouse._offset(p_position bigint) RETURNS text
    LANGUAGE … IMMUTABLE STRICT PARALLEL SAFE
    AS …;

COMMENT ON FUNCTION rouse._offset(p_position bigint) IS 'The wire form of a position.';

CREATE FUNCTION rouse._pool_limited(p_service_id integer, p_pool text) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._pool_limited(p_service_id integer, p_pool text) IS 'Whether a worker pool limits its claims.';

CREATE FUNCTION rouse._pool_stream(p_service_id integer, p_pool text) RETURNS text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._pool_stream(p_service_id integer, p_pool text) IS 'The wake stream of a worker pool.';

CREATE FUNCTION rouse._pool_tell(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamp with time zone) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._pool_tell(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamp with time zone) IS 'Tells a pool again of the wakes that wait for it.';

CREATE FUNCTION rouse._pool_waiting(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._pool_waiting(p_service_id integer, p_pool_id text, p_limit integer, p_now timestamp with time zone) IS 'The wakes that wait for a pool and that it has room for.';

CREATE FUNCTION rouse._pools_changed(p_service_id integer, p_runner_id text, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._pools_changed(p_service_id integer, p_runner_id text, p_now timestamp with time zone) IS 'Tells a runner that its pools have changed.';

CREATE FUNCTION rouse._principal_kind(p_principal text) RETURNS text
    LANGUAGE … IMMUTABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._principal_kind(p_principal text) IS 'The kind of a principal.';

CREATE FUNCTION rouse._principal_trusted(p_principal text) RETURNS boolean
    LANGUAGE … IMMUTABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._principal_trusted(p_principal text) IS 'Whether a principal passes every check.';

CREATE FUNCTION rouse._retention_adopt(p_limit integer, p_now timestamp with time zone) RETURNS TABLE(seen integer, adopted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_adopt(p_limit integer, p_now timestamp with time zone) IS 'retention_adopt at a chosen time.';

CREATE FUNCTION rouse._retention_audit(p_limit integer, p_age_ms bigint, p_now timestamp with time zone) RETURNS TABLE(deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_audit(p_limit integer, p_age_ms bigint, p_now timestamp with time zone) IS 'retention_audit at a chosen time.';

CREATE FUNCTION rouse._retention_claims_over(p_after text, p_limit integer, p_before timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._retention_claims_over(p_after text, p_limit integer, p_before timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text) IS 'Removes some of the claims that ended before a time.';

CREATE FUNCTION rouse._retention_count(p_stream_id bigint, p_count bigint) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_count(p_stream_id bigint, p_count bigint) IS 'Up to where a stream is to be trimmed to hold at most so many messages.';

CREATE FUNCTION rouse._retention_mark(p_stream_id bigint, p_age_ms bigint, p_now timestamp with time zone) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_mark(p_stream_id bigint, p_age_ms bigint, p_now timestamp with time zone) IS 'Notes a stream''s tail now and then, and returns the newest that is of an age.';

CREATE FUNCTION rouse._retention_producers_idle(p_after text, p_limit integer, p_before timestamp with time zone, p_now timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text, OUT cut boolean) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._retention_producers_idle(p_after text, p_limit integer, p_before timestamp with time zone, p_now timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text, OUT cut boolean) IS 'Forgets the producers of some streams that are idle since a time.';

CREATE FUNCTION rouse._retention_readers(p_walk text, p_after text, p_limit integer) RETURNS TABLE(id text, service_id integer, path text, key text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_readers(p_walk text, p_after text, p_limit integer) IS 'The runners or pools whose wake streams a walk looks at next.';

CREATE FUNCTION rouse._retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamp with time zone) RETURNS TABLE(seen integer, deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint, p_now timestamp with time zone) IS 'retention_rows at a chosen time.';

CREATE FUNCTION rouse._retention_streams(p_limit integer, p_period_ms bigint, p_now timestamp with time zone) RETURNS TABLE(seen integer, trimmed integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_streams(p_limit integer, p_period_ms bigint, p_now timestamp with time zone) IS 'retention_streams at a chosen time.';

CREATE FUNCTION rouse._retention_sweep(p_limit integer, p_now timestamp with time zone) RETURNS TABLE(deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_sweep(p_limit integer, p_now timestamp with time zone) IS 'retention_sweep at a chosen time.';

CREATE FUNCTION rouse._retention_uncount(p_stream_id bigint, p_from bigint, p_to bigint) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_uncount(p_stream_id bigint, p_from bigint, p_to bigint) IS 'Takes what a trim takes off the count of a stream with a limit by count.';

CREATE FUNCTION rouse._retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint, p_now timestamp with time zone) RETURNS TABLE(seen integer, trimmed integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint, p_now timestamp with time zone) IS 'retention_wake_streams at a chosen time.';

CREATE FUNCTION rouse._retention_wakes_over(p_after text, p_limit integer, p_before timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._retention_wakes_over(p_after text, p_limit integer, p_before timestamp with time zone, OUT seen integer, OUT deleted integer, OUT at text) IS 'Removes some of the wakes that were resolved before a time.';

CREATE FUNCTION rouse._retention_walk(p_name text, p_period_ms bigint, p_now timestamp with time zone) RETURNS SETOF text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._retention_walk(p_name text, p_period_ms bigint, p_now timestamp with time zone) IS 'Takes up a walk over a table for one step.';

CREATE FUNCTION rouse._retention_walked(p_name text, p_cursor text, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._retention_walked(p_name text, p_cursor text, p_now timestamp with time zone) IS 'Puts a walk down after one step.';

CREATE FUNCTION rouse._room_tell(p_freed jsonb, p_now timestamp with time zone) RETURNS uuid[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._room_tell(p_freed jsonb, p_now timestamp with time zone) IS 'The waiting wakes that ended claims have made room for.';

CREATE FUNCTION rouse._route_due(p_service_id integer, p_entity_url text, p_policy jsonb, p_index integer, p_attempts integer, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._route_due(p_service_id integer, p_entity_url text, p_policy jsonb, p_index integer, p_attempts integer, p_now timestamp with time zone) IS 'When a wake of several targets is looked at first.';

CREATE FUNCTION rouse._runner_heartbeat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb, p_now timestamp with time zone) RETURNS TABLE(outcome text, last_seen_at timestamp with time zone, liveness_lease_expires_at timestamp with time zone, lease_ms bigint, wake_stream_offset text, diagnostics jsonb, redelivered integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._runner_heartbeat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb, p_now timestamp with time zone) IS 'Extends a runner''s liveness lease at a chosen time.';

CREATE FUNCTION rouse._runner_tell(p_service_id integer, p_runner_id text, p_now timestamp with time zone) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._runner_tell(p_service_id integer, p_runner_id text, p_now timestamp with time zone) IS 'Tells a runner again of the wakes that wait for it.';

CREATE FUNCTION rouse._shared_state_link(p_service_id integer, p_path text, p_entity_url text, p_manifest_key text, p_principal text, p_trusted boolean) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._shared_state_link(p_service_id integer, p_path text, p_entity_url text, p_manifest_key text, p_principal text, p_trusted boolean) IS 'Links an entity to a shared state.';

CREATE FUNCTION rouse._shared_state_may(p_service_id integer, p_principal text, p_permission text, p_path text) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._shared_state_may(p_service_id integer, p_principal text, p_permission text, p_path text) IS 'Whether a principal may read or write a shared state.';

CREATE FUNCTION rouse._stream_append(p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[], p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[], s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[], s_payloads bytea[], s_counts integer[], s_stamps text[], s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[], s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[], p_wait boolean, p_now timestamp with time zone) RETURNS TABLE(special boolean, ord integer, outcome text, stream_id bigint, tail bigint, closed boolean, content_type text, producer_epoch bigint, producer_seq bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_append(p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[], p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[], s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[], s_payloads bytea[], s_counts integer[], s_stamps text[], s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[], s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[], p_wait boolean, p_now timestamp with time zone) IS 'stream_append with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_chain(p_stream_id bigint, p_hi bigint) RETURNS TABLE(stream_id bigint, lo bigint, hi bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._stream_chain(p_stream_id bigint, p_hi bigint) IS 'The stretches of a stream up to a position, its own first, then its sources''.';

CREATE FUNCTION rouse._stream_create(p_service integer, p_path text, p_content_type text, p_ttl_seconds bigint, p_expires_at timestamp with time zone, p_closed boolean, p_payload bytea, p_count integer, p_stamps integer[], p_fork_path text, p_fork_offset bigint, p_fork_sub bigint, p_kind text, p_owner text, p_consumer_id bigint, p_now timestamp with time zone) RETURNS TABLE(outcome text, stream_id bigint, tail bigint, closed boolean, content_type text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse._stream_create(p_service integer, p_path text, p_content_type text, p_ttl_seconds bigint, p_expires_at timestamp with time zone, p_closed boolean, p_payload bytea, p_count integer, p_stamps integer[], p_fork_path text, p_fork_offset bigint, p_fork_sub bigint, p_kind text, p_owner text, p_consumer_id bigint, p_now timestamp with time zone) IS 'stream_create with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_delete(p_service integer, p_path text, p_internal boolean, p_now timestamp with time zone) RETURNS TABLE(outcome text, stream_id bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse._stream_delete(p_service integer, p_path text, p_internal boolean, p_now timestamp with time zone) IS 'stream_delete with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_ended(p_streams bigint[]) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._stream_ended(p_streams bigint[]) IS 'Marks the observers of streams that were closed.';

CREATE FUNCTION rouse._stream_head(p_service integer, p_path text, p_now timestamp with time zone) RETURNS TABLE(outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean, ttl_seconds bigint, expires_at timestamp with time zone)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_head(p_service integer, p_path text, p_now timestamp with time zone) IS 'stream_head with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_purge(p_limit integer, p_now timestamp with time zone) RETURNS TABLE(expired integer, messages integer, streams integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_purge(p_limit integer, p_now timestamp with time zone) IS 'stream_purge with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_push(p_stream_id bigint, p_payload text, p_actionable boolean) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._stream_push(p_stream_id bigint, p_payload text, p_actionable boolean) IS 'Appends one JSON message inside the caller''s transaction.';

CREATE FUNCTION rouse._stream_read(p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer, p_max_rows integer, p_now timestamp with time zone) RETURNS TABLE(outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean, ttl_seconds bigint, expires_at timestamp with time zone, touch boolean, next bigint, page bytea, positions bigint[], stamps text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_read(p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer, p_max_rows integer, p_now timestamp with time zone) IS 'stream_read with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_retire(p_stream_id bigint, p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_retire(p_stream_id bigint, p_now timestamp with time zone) IS 'Deletes a locked stream: softly while forks read from it, else for good, and then soft-deleted sources without forks too.';

CREATE FUNCTION rouse._stream_slide(p_expires_at timestamp with time zone, p_ttl_seconds bigint, p_now timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE … IMMUTABLE
    AS …;

COMMENT ON FUNCTION rouse._stream_slide(p_expires_at timestamp with time zone, p_ttl_seconds bigint, p_now timestamp with time zone) IS 'The expiry of a stream with a time-to-live after a read or write at p_now.';

CREATE FUNCTION rouse._stream_touch(p_stream_id bigint, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_touch(p_stream_id bigint, p_now timestamp with time zone) IS 'stream_touch with a chosen time, for tests.';

CREATE FUNCTION rouse._stream_trim(p_stream_id bigint, p_to bigint, p_force boolean, p_wait boolean, p_now timestamp with time zone) RETURNS TABLE(outcome text, head bigint, tail bigint, limited_by text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._stream_trim(p_stream_id bigint, p_to bigint, p_force boolean, p_wait boolean, p_now timestamp with time zone) IS 'Moves a stream''s head, not beyond what somebody has still to read.';

CREATE FUNCTION rouse._stream_watched(p_streams bigint[]) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._stream_watched(p_streams bigint[]) IS 'Marks the cursors of watched streams that got an append.';

CREATE FUNCTION rouse._subscription_discover(p_service integer, p_stream_id bigint, p_path text, p_kind text, p_owner text, p_tail bigint) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._subscription_discover(p_service integer, p_stream_id bigint, p_path text, p_kind text, p_owner text, p_tail bigint) IS 'Links a new stream to the subscriptions that watch its name.';

CREATE TABLE rouse.subscriptions (
    consumer_id bigint NOT NULL,
    service_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL,
    pattern text COLLATE pg_catalog."C",
    wake_stream text COLLATE pg_catalog."C",
    webhook_url text,
    description text,
    config_hash text NOT NULL,
    mount text DEFAULT ''::text NOT NULL,
    owner text NOT NULL,
    system boolean NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    last_error text,
    changes integer DEFAULT 1 NOT NULL,
    settled integer DEFAULT 0 NOT NULL,
    scanned text COLLATE pg_catalog."C",
    scan_done boolean DEFAULT false NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    target jsonb,
    CONSTRAINT subscriptions_status_check CHECK ((status = ANY (ARRAY['active'::text, 'failed'::text]))),
    CONSTRAINT subscriptions_target_check CHECK (
CASE type
    WHEN 'webhook'::text THEN (webhook_url IS NOT NULL)
    WHEN 'pull-wake'::text THEN (wake_stream IS NOT NULL)
    ELSE COALESCE(((target ->> 'type'::text) = type), false)
END),
    CONSTRAINT subscriptions_type_check CHECK (((type <> ''::text) AND ((type = ANY (ARRAY['webhook'::text, 'pull-wake'::text])) = (target IS NULL))))
)
WITH (fillfactor='70');

COMMENT ON TABLE rouse.subscriptions IS 'A consumer of streams it does not own (Durable Streams __ds). Its mutex is the consumers row of the same id, its cursors are links in consumer_streams.';

COMMENT ON COLUMN rouse.subscriptions.mount IS 'Path prefix of the mount it was made through: the URLs it is told are below it.';

COMMENT ON COLUMN rouse.subscriptions.owner IS 'Principal that registered it; with system false it is linked to that principal''s guarded streams only.';

COMMENT ON COLUMN rouse.subscriptions.status IS 'failed while the receiver''s last answer was a refusal.';

COMMENT ON COLUMN rouse.subscriptions.changes IS 'Counts changes of what it watches; settled says up to which of them the streams that existed are linked.';

COMMENT ON COLUMN rouse.subscriptions.scanned IS 'Path up to which the streams that existed have been looked at for the pattern.';

COMMENT ON COLUMN rouse.subscriptions.target IS 'Of a subscription whose type is neither webhook nor pull-wake: what the transport of that type is handed, its type included.';

CREATE FUNCTION rouse._subscription_link(p_sub rouse.subscriptions, p_streams bigint[], p_link_type text) RETURNS bigint[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._subscription_link(p_sub rouse.subscriptions, p_streams bigint[], p_link_type text) IS 'Links existing streams to a subscription at their tails.';

CREATE FUNCTION rouse._subscription_lock() RETURNS integer
    LANGUAGE … IMMUTABLE PARALLEL SAFE
    AS …;

COMMENT ON FUNCTION rouse._subscription_lock() IS 'Class of the advisory locks of stream creation.';

CREATE FUNCTION rouse._subscription_refusal(p_service integer, p_paths text[], p_wake_stream text, p_owner text, p_system boolean) RETURNS text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._subscription_refusal(p_service integer, p_paths text[], p_wake_stream text, p_owner text, p_system boolean) IS 'Why a subscription may not watch these streams.';

CREATE FUNCTION rouse._subscription_stream(p_path text, p_link_type text, p_acked bigint, p_tail bigint) RETURNS jsonb
    LANGUAGE … IMMUTABLE PARALLEL SAFE
    AS …;

COMMENT ON FUNCTION rouse._subscription_stream(p_path text, p_link_type text, p_acked bigint, p_tail bigint) IS 'The wire form of a subscription''s link.';

CREATE FUNCTION rouse._subscription_unlink(p_consumer_id bigint, p_streams bigint[]) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._subscription_unlink(p_consumer_id bigint, p_streams bigint[]) IS 'Unlinks streams from a consumer.';

CREATE FUNCTION rouse._subscription_writes(p_consumer bigint, p_stream bigint) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._subscription_writes(p_consumer bigint, p_stream bigint) IS 'Whether a subscription''s holder may append to an entity''s stream.';

CREATE FUNCTION rouse._target_choose(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamp with time zone) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._target_choose(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamp with time zone) IS 'Which target of a policy gets a wake.';

CREATE FUNCTION rouse._target_left(p_service_id integer, p_runner_id text, p_pools text[], p_at timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._target_left(p_service_id integer, p_runner_id text, p_pools text[], p_at timestamp with time zone) IS 'Has wakes looked at whose target is gone earlier than was known.';

CREATE FUNCTION rouse._target_next(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamp with time zone) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._target_next(p_service_id integer, p_policy jsonb, p_from integer, p_now timestamp with time zone) IS 'The first target of a policy that would take a wake.';

CREATE FUNCTION rouse._target_state(p_service_id integer, p_target jsonb, p_now timestamp with time zone, OUT state text, OUT alive_until timestamp with time zone) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._target_state(p_service_id integer, p_target jsonb, p_now timestamp with time zone, OUT state text, OUT alive_until timestamp with time zone) IS 'Whether a target would take a wake at a chosen time.';

CREATE FUNCTION rouse._target_when(p_policy jsonb, p_index integer) RETURNS jsonb
    LANGUAGE … IMMUTABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._target_when(p_policy jsonb, p_index integer) IS 'What moves a wake on from one target of a policy.';

CREATE FUNCTION rouse._targets_gone(p_service_id integer, p_policy jsonb) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._targets_gone(p_service_id integer, p_policy jsonb) IS 'Whether no target of a policy is there.';

CREATE FUNCTION rouse._targets_refusal(p_service_id integer, p_policy jsonb, p_principal text, p_system boolean) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._targets_refusal(p_service_id integer, p_policy jsonb, p_principal text, p_system boolean) IS 'Why a principal may not use a dispatch policy.';

CREATE FUNCTION rouse._txid() RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._txid() IS 'The 32-bit transaction id that a change feed reports.';

CREATE FUNCTION rouse._wake_mint(p_consumers bigint[], p_reasons text[], p_now timestamp with time zone) RETURNS TABLE(consumer_id bigint, wake_id uuid)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_mint(p_consumers bigint[], p_reasons text[], p_now timestamp with time zone) IS 'Makes the next wake of idle consumers under their row locks.';

CREATE FUNCTION rouse._wake_mint_subscriptions(p_consumers bigint[], p_reasons text[], p_now timestamp with time zone) RETURNS TABLE(consumer_id bigint, wake_id uuid)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_mint_subscriptions(p_consumers bigint[], p_reasons text[], p_now timestamp with time zone) IS 'Makes the next wake of idle subscriptions under their row locks.';

CREATE FUNCTION rouse._wake_move(p_consumer rouse.consumers, p_target integer, p_reason text, p_now timestamp with time zone) RETURNS uuid
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_move(p_consumer rouse.consumers, p_target integer, p_reason text, p_now timestamp with time zone) IS 'Replaces an outstanding wake by one for another target.';

CREATE FUNCTION rouse._wake_publish(p_wakes uuid[], p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_publish(p_wakes uuid[], p_now timestamp with time zone) IS 'Appends wakes to their runners'' wake streams, or makes them due for a push transport.';

CREATE FUNCTION rouse._wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text, p_now timestamp with time zone) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text, p_now timestamp with time zone) IS 'wake_redeliver at a chosen time; null reads the clock behind the lock.';

CREATE FUNCTION rouse._wake_stream_floor(p_service_id integer, p_path text) RETURNS bigint
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse._wake_stream_floor(p_service_id integer, p_path text) IS 'Up to where a wake stream holds nothing of an open wake.';

CREATE FUNCTION rouse._wake_supersede(p_consumer rouse.consumers, p_now timestamp with time zone) RETURNS rouse.consumers
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_supersede(p_consumer rouse.consumers, p_now timestamp with time zone) IS 'Takes back an outstanding wake.';

CREATE FUNCTION rouse._wake_unminted(p_consumers bigint[], p_now timestamp with time zone) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wake_unminted(p_consumers bigint[], p_now timestamp with time zone) IS 'Parks entities whose attempts are used up or whose pools are gone.';

CREATE FUNCTION rouse._wakes_refused(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) RETURNS uuid[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wakes_refused(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) IS 'Unclaimed wakes that were refused for want of room, their consumers locked.';

CREATE FUNCTION rouse._wakes_waiting(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) RETURNS uuid[]
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse._wakes_waiting(p_service_id integer, p_runner_id text, p_pools text[], p_limit integer) IS 'The oldest unclaimed wakes that wait for a runner or for pools, their consumers locked.';

CREATE FUNCTION rouse.attachment_begin(p_service_id integer, p_url text, p_id text, p_content_type text, p_length bigint) RETURNS TABLE(outcome text, stream_id bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.attachment_begin(p_service_id integer, p_url text, p_id text, p_content_type text, p_length bigint) IS 'Makes the stream of a large file.';

CREATE FUNCTION rouse.attachment_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_event text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.attachment_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_event text) IS 'Removes an attachment.';

CREATE FUNCTION rouse.attachment_end(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_stream_id bigint, p_length bigint, p_manifest jsonb, p_event text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.attachment_end(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_stream_id bigint, p_length bigint, p_manifest jsonb, p_event text) IS 'Gives a stored file its place at its entity.';

CREATE FUNCTION rouse.attachment_get(p_service_id integer, p_url text, p_principal text, p_id text) RETURNS TABLE(outcome text, stream_id bigint, bytes bigint, manifest jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.attachment_get(p_service_id integer, p_url text, p_principal text, p_id text) IS 'Looks an attachment up.';

CREATE FUNCTION rouse.attachment_piece(p_stream_id bigint, p_position bigint, p_bytes bytea) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.attachment_piece(p_stream_id bigint, p_position bigint, p_bytes bytea) IS 'Adds a piece to a file.';

CREATE FUNCTION rouse.attachment_put(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_content_type text, p_bytes bytea, p_manifest jsonb, p_event text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.attachment_put(p_service_id integer, p_url text, p_principal text, p_by text, p_id text, p_content_type text, p_bytes bytea, p_manifest jsonb, p_event text) IS 'Attaches a file to an entity.';

CREATE FUNCTION rouse.audit_add(p_service_id integer, p_principal text, p_action text, p_resource text, p_detail jsonb) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.audit_add(p_service_id integer, p_principal text, p_action text, p_resource text, p_detail jsonb) IS 'Writes one audit row in the caller''s transaction.';

CREATE TABLE rouse.audit_log (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    principal text NOT NULL,
    action text NOT NULL,
    resource text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');

COMMENT ON TABLE rouse.audit_log IS 'Who changed what in the control plane. Never holds a secret.';

CREATE FUNCTION rouse.audit_list(p_service_id integer, p_resource text, p_before bigint, p_limit integer) RETURNS SETOF rouse.audit_log
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.audit_list(p_service_id integer, p_resource text, p_before bigint, p_limit integer) IS 'The audit rows of one resource, newest first.';

CREATE FUNCTION rouse.claim_ack(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb) RETURNS rouse.claim_answer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.claim_ack(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb) IS 'Advances a cursor: ok, stale, lease_expired, invalid_offset, unknown_stream, not_found.';

CREATE FUNCTION rouse.claim_acquire(p_service_id integer, p_consumer text, p_wake uuid, p_holder text, p_runner text DEFAULT NULL::text, p_claim_id text DEFAULT NULL::text) RETURNS rouse.claim_answer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.claim_acquire(p_service_id integer, p_consumer text, p_wake uuid, p_holder text, p_runner text, p_claim_id text) IS 'Takes a mutex: granted, repeated, held, stale, no_work, stopped, paused, not_owner, runner_*, not_found.';

CREATE FUNCTION rouse.claim_apply(p_ops jsonb, p_wait boolean) RETURNS TABLE(ord integer, answer rouse.claim_answer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.claim_apply(p_ops jsonb, p_wait boolean) IS 'A batch of acquire, heartbeat, ack and release calls in one transaction.';

CREATE FUNCTION rouse.claim_heartbeat(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid) RETURNS rouse.claim_answer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.claim_heartbeat(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid) IS 'Extends a lease: ok, stale, lease_expired, not_found.';

CREATE FUNCTION rouse.claim_reap(p_limit integer) RETURNS TABLE(expired integer, redelivered integer, moved integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.claim_reap(p_limit integer) IS 'Ends lapsed claims and redelivers unclaimed wakes.';

CREATE FUNCTION rouse.claim_release(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb DEFAULT '[]'::jsonb, p_error text DEFAULT NULL::text) RETURNS rouse.claim_answer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.claim_release(p_service_id integer, p_consumer text, p_epoch bigint, p_wake uuid, p_acks jsonb, p_error text) IS 'Gives a mutex back: released, stale, lease_expired, invalid_offset, unknown_stream, not_found.';

CREATE FUNCTION rouse.consumer_get(p_service_id integer, p_name text) RETURNS TABLE(name text, kind text, entity_url text, created_by text, state text, paused boolean, epoch bigint, wake_id text, holder text, runner_id text, lease_ms bigint, pending boolean, streams jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.consumer_get(p_service_id integer, p_name text) IS 'A mutex with its cursor, without tokens.';

CREATE TABLE rouse.wake_notifications (
    service_id integer NOT NULL,
    wake_id uuid NOT NULL,
    consumer_id text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    entity_url text COLLATE pg_catalog."C",
    target_type text NOT NULL,
    target_runner_id text COLLATE pg_catalog."C",
    target_webhook_url text,
    target jsonb NOT NULL,
    runner_wake_stream text COLLATE pg_catalog."C",
    runner_wake_stream_offset text,
    notification_public jsonb NOT NULL,
    delivery_status rouse.wake_delivery_status DEFAULT 'queued'::text NOT NULL,
    claim_status rouse.wake_claim_status DEFAULT 'unclaimed'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    delivered_at timestamp with time zone,
    claimed_at timestamp with time zone,
    resolved_at timestamp with time zone,
    target_pool_id text COLLATE pg_catalog."C",
    target_index smallint DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 1 NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_limit='2000');

COMMENT ON TABLE rouse.wake_notifications IS 'Every wake minted, without its tokens (RFC wake_notifications). One open wake a consumer.';

COMMENT ON COLUMN rouse.wake_notifications.next_attempt_at IS 'When a push transport sends it next; null when nothing is due (pull-wake entries are appended when the wake is minted).';

COMMENT ON COLUMN rouse.wake_notifications.target_index IS 'Which target of the policy it is for.';

COMMENT ON COLUMN rouse.wake_notifications.attempt IS 'The how-manieth wake since progress.';

CREATE FUNCTION rouse.consumer_wakes(p_service_id integer, p_consumer text, p_before bigint, p_limit integer) RETURNS SETOF rouse.wake_notifications
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.consumer_wakes(p_service_id integer, p_consumer text, p_before bigint, p_limit integer) IS 'The wakes of one consumer, newest first.';

CREATE FUNCTION rouse.cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.cron_ensure(p_service_id integer, p_path text, p_expression text, p_timezone text) IS 'Makes a cron stream.';

CREATE FUNCTION rouse.delivery_lend(p_limit integer, p_each integer, p_room jsonb) RETURNS TABLE(service_id integer, service_name text, wake_id uuid, consumer_id bigint, consumer_name text, epoch bigint, attempt integer, target jsonb, notification jsonb, lease_ms integer, receiver text, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.delivery_lend(p_limit integer, p_each integer, p_room jsonb) IS 'Lends due wakes to a delivery worker, each receiver''s up to its room.';

CREATE FUNCTION rouse.delivery_result(p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint, p_status_code integer, p_error text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.delivery_result(p_service_id integer, p_wake_id uuid, p_attempt integer, p_outcome text, p_retry_ms bigint, p_status_code integer, p_error text) IS 'Records how a delivery attempt ended.';

CREATE FUNCTION rouse.delivery_uncertain(p_service_id integer, p_wake_id uuid, p_attempt integer) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.delivery_uncertain(p_service_id integer, p_wake_id uuid, p_attempt integer) IS 'Whether an earlier attempt to deliver a wake was never answered.';

CREATE FUNCTION rouse.dispatch_route(p_streams bigint[], p_positions bigint[]) RETURNS TABLE(stream_id bigint, outcome text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.dispatch_route(p_streams bigint[], p_positions bigint[]) IS 'Wakes the owners of streams that got actionable appends.';

CREATE FUNCTION rouse.dispatch_scan(p_after bigint, p_limit integer) RETURNS TABLE(stream_id bigint, "position" bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.dispatch_scan(p_after bigint, p_limit integer) IS 'Streams whose idle consumers have work nobody was told about.';

CREATE FUNCTION rouse.entity_access(p_service_id integer, p_url text, p_principal text, p_permission text) RETURNS TABLE(allowed boolean, entity rouse.entities)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_access(p_service_id integer, p_url text, p_principal text, p_permission text) IS 'One entity and whether a principal may do something to it.';

CREATE FUNCTION rouse.entity_allowed(p_service_id integer, p_principal text, p_permission text, p_urls text[]) RETURNS SETOF text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_allowed(p_service_id integer, p_principal text, p_permission text, p_urls text[]) IS 'The entities among some to which a principal may do something.';

CREATE TABLE rouse.consumer_claims (
    service_id integer NOT NULL,
    consumer_id text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    wake_id uuid,
    entity_url text COLLATE pg_catalog."C",
    stream_path text NOT NULL COLLATE pg_catalog."C",
    runner_id text COLLATE pg_catalog."C",
    holder text,
    claim_id text,
    status rouse.claim_status NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    last_heartbeat_at timestamp with time zone,
    lease_expires_at timestamp with time zone,
    released_at timestamp with time zone,
    acked_streams jsonb,
    next_wake boolean,
    error text,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    pool_id text COLLATE pg_catalog."C"
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_limit='2000');

COMMENT ON TABLE rouse.consumer_claims IS 'Every grant of a mutex, written in the transaction of the decision (RFC consumer_claims).';

CREATE FUNCTION rouse.entity_claims(p_service_id integer, p_url text, p_before bigint, p_limit integer) RETURNS SETOF rouse.consumer_claims
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_claims(p_service_id integer, p_url text, p_before bigint, p_limit integer) IS 'The claims of one entity, newest first.';

CREATE TABLE rouse.entity_dispatch_state (
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    pending_source_streams jsonb DEFAULT '[]'::jsonb NOT NULL,
    pending_reason text,
    pending_since timestamp with time zone,
    outstanding_wake_id uuid,
    outstanding_wake_target jsonb,
    outstanding_wake_created_at timestamp with time zone,
    active_consumer_id text,
    active_runner_id text,
    active_epoch bigint,
    active_claimed_at timestamp with time zone,
    active_lease_expires_at timestamp with time zone,
    last_wake_id uuid,
    last_claimed_at timestamp with time zone,
    last_released_at timestamp with time zone,
    last_completed_at timestamp with time zone,
    last_error text,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');

COMMENT ON TABLE rouse.entity_dispatch_state IS 'One row an entity: pending work, outstanding wake, active claim, as UIs read them (RFC entity_dispatch_state).';

CREATE FUNCTION rouse.entity_dispatch(p_service_id integer, p_url text) RETURNS SETOF rouse.entity_dispatch_state
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_dispatch(p_service_id integer, p_url text) IS 'The dispatch state of one entity.';

CREATE TABLE rouse.consumer_streams (
    consumer_id bigint NOT NULL,
    stream_id bigint NOT NULL,
    link_type text DEFAULT 'own'::text NOT NULL,
    acked bigint DEFAULT 0 NOT NULL,
    behind boolean DEFAULT false NOT NULL,
    CONSTRAINT consumer_streams_link_type_check CHECK ((link_type = ANY (ARRAY['own'::text, 'explicit'::text, 'glob'::text])))
)
WITH (fillfactor='70');

COMMENT ON TABLE rouse.consumer_streams IS 'The cursor: how far a consumer has acked each of its streams. Only rises.';

COMMENT ON COLUMN rouse.consumer_streams.link_type IS 'own: an entity and its main stream, where actionable appends count. explicit, glob: a subscription and a stream, where every append counts.';

COMMENT ON COLUMN rouse.consumer_streams.behind IS 'Set by every append to a watched stream in its own transaction; cleared only under the stream''s row lock once tail = acked. Never false while work is left; own links do not use it.';

CREATE TABLE rouse.runner_runtime_diagnostics (
    service_id integer NOT NULL,
    runner_id text NOT NULL COLLATE pg_catalog."C",
    owner_principal text NOT NULL,
    wake_stream_offset text,
    last_seen_at timestamp with time zone,
    liveness_lease_expires_at timestamp with time zone,
    diagnostics jsonb,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02');

ALTER TABLE ONLY rouse.runner_runtime_diagnostics REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.runner_runtime_diagnostics IS 'Liveness and self-reported diagnostics of a runner, apart from its registration so that heartbeats do not rewrite what UIs sync.';

CREATE TABLE rouse.runners (
    service_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    owner_principal text NOT NULL,
    label text NOT NULL,
    kind text DEFAULT 'local'::text NOT NULL,
    admin_status text DEFAULT 'enabled'::text NOT NULL,
    wake_stream text NOT NULL COLLATE pg_catalog."C",
    sandbox_profiles jsonb DEFAULT '[]'::jsonb NOT NULL,
    capacity integer,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    wake_key bytea,
    CONSTRAINT runners_admin_status_check CHECK ((admin_status = ANY (ARRAY['enabled'::text, 'disabled'::text]))),
    CONSTRAINT runners_capacity_check CHECK (((capacity >= 1) AND (capacity <= 1024))),
    CONSTRAINT runners_kind_check CHECK ((kind = ANY (ARRAY['local'::text, 'cloud-worker'::text, 'sandbox'::text, 'ci'::text, 'server'::text]))),
    CONSTRAINT runners_wake_key_check CHECK ((octet_length(wake_key) = 32))
);

ALTER TABLE ONLY rouse.runners REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.runners IS 'A named compute identity with one owner (RFC runners). Changes by administration only; liveness lives in runner_runtime_diagnostics.';

COMMENT ON COLUMN rouse.runners.wake_key IS 'X25519 public key that the entries of the runner''s wake streams are sealed to as they are read; null: they are served in the clear.';

CREATE TABLE rouse.streams (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    path text COLLATE pg_catalog."C",
    kind text DEFAULT 'app'::text NOT NULL,
    owner text,
    content_type text NOT NULL,
    is_json boolean NOT NULL,
    tail bigint DEFAULT 0 NOT NULL,
    head bigint DEFAULT 0 NOT NULL,
    actionable bigint DEFAULT 0 NOT NULL,
    pending boolean DEFAULT false NOT NULL,
    consumer_id bigint,
    last_seq text COLLATE pg_catalog."C",
    closed_at timestamp with time zone,
    closed_by text,
    ttl_seconds bigint,
    expires_at timestamp with time zone,
    forked_from bigint,
    fork_at bigint,
    fork_offset bigint,
    fork_sub bigint,
    deleted_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    watched smallint DEFAULT 0 NOT NULL,
    CONSTRAINT streams_fork_check CHECK (((forked_from IS NULL) = (fork_at IS NULL))),
    CONSTRAINT streams_kind_check CHECK ((kind = ANY (ARRAY['app'::text, 'attachment'::text, 'cron'::text, 'entity'::text, 'error'::text, 'members'::text, 'shared'::text, 'wake'::text]))),
    CONSTRAINT streams_tail_check CHECK (((tail >= head) AND (head >= 0) AND (actionable <= tail)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

COMMENT ON TABLE rouse.streams IS 'One append-only log. tail is the position after the last byte; offsets are positions, zero-padded.';

COMMENT ON COLUMN rouse.streams.path IS 'Name below the service, without a leading slash. Null once retired: the name is free again, the rows wait for stream_purge.';

COMMENT ON COLUMN rouse.streams.owner IS 'Principal that may read a guarded stream (kinds entity, error, wake); null for a plain stream.';

COMMENT ON COLUMN rouse.streams.actionable IS 'Position of the last append that asks for the owner''s attention; work is pending while it is beyond the consumer''s acked position.';

COMMENT ON COLUMN rouse.streams.pending IS 'Hint for dispatch_scan: set by an actionable append, cleared when everything actionable is acked.';

COMMENT ON COLUMN rouse.streams.consumer_id IS 'The mutex of the entity whose main stream this is: the router''s single lookup (RFC "simple indexed lookup").';

COMMENT ON COLUMN rouse.streams.deleted_at IS 'Soft delete: gone for its clients, kept for the forks that still read it.';

COMMENT ON COLUMN rouse.streams.watched IS 'Who an append must mark as behind: 1 subscriptions, 2 observers, 3 both. A bit set for nothing costs one probe.';

CREATE TABLE rouse.worker_pool_members (
    service_id integer NOT NULL,
    pool_id text NOT NULL COLLATE pg_catalog."C",
    runner_id text NOT NULL COLLATE pg_catalog."C",
    owner_principal text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    accepted boolean DEFAULT false NOT NULL,
    disabled_by text,
    added_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT worker_pool_members_accepted_check CHECK ((accepted OR (status <> 'active'::text))),
    CONSTRAINT worker_pool_members_status_check CHECK ((status = ANY (ARRAY['invited'::text, 'active'::text, 'disabled'::text])))
);

ALTER TABLE ONLY rouse.worker_pool_members REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.worker_pool_members IS 'Runners of a pool. Active takes both owners'' word: the pool''s invites, by name or by a join token, the runner''s accepts.';

COMMENT ON COLUMN rouse.worker_pool_members.owner_principal IS 'The runner''s owner.';

COMMENT ON COLUMN rouse.worker_pool_members.accepted IS 'The runner''s owner has agreed.';

COMMENT ON COLUMN rouse.worker_pool_members.disabled_by IS 'Who disabled it: a runner''s owner undoes only what they did themselves.';

CREATE TABLE rouse.worker_pools (
    service_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    owner_principal text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    admin_status text DEFAULT 'enabled'::text NOT NULL,
    wake_stream text NOT NULL COLLATE pg_catalog."C",
    max_concurrent_claims_per_runner integer,
    max_total_claims integer,
    join_generation integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT worker_pools_admin_status_check CHECK ((admin_status = ANY (ARRAY['enabled'::text, 'disabled'::text]))),
    CONSTRAINT worker_pools_max_concurrent_claims_per_runner_check CHECK (((max_concurrent_claims_per_runner >= 1) AND (max_concurrent_claims_per_runner <= 1024))),
    CONSTRAINT worker_pools_max_total_claims_check CHECK (((max_total_claims >= 1) AND (max_total_claims <= 100000)))
);

ALTER TABLE ONLY rouse.worker_pools REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.worker_pools IS 'A group of runners that race for the wakes of one shared wake stream (RFC "Worker pools"). The limits are counted from live claims.';

COMMENT ON COLUMN rouse.worker_pools.join_generation IS 'Join tokens name it; one more, and those made before it have ended.';

CREATE VIEW rouse.entity_display AS
 SELECT e.service_id,
    e.url,
    e.type,
    e.status,
    p.pending,
    (t.target ->> 'type'::text) AS target_type,
    r.id AS runner_id,
    r.label AS runner_label,
        CASE
            WHEN (r.id IS NULL) THEN NULL::text
            WHEN l.online THEN 'online'::text
            ELSE 'offline'::text
        END AS runner_liveness,
    k.code,
        CASE k.code
            WHEN 'killed'::text THEN 'Killed'::text
            WHEN 'stopped'::text THEN 'Stopped'::text
            WHEN 'stopping'::text THEN 'Stopping...'::text
            WHEN 'paused'::text THEN 'Paused'::text
            WHEN 'spawning'::text THEN 'Starting...'::text
            WHEN 'parked'::text THEN (('Parked — '::text ||
            CASE c.parked_reason
                WHEN 'attempts_exhausted'::text THEN
                CASE c.attempts
                    WHEN 1 THEN 'tried once'::text
                    ELSE (('tried '::text || c.attempts) || ' times'::text)
                END
                WHEN 'unclaimed'::text THEN 'nobody took it in time'::text
                WHEN 'delivery_failed'::text THEN 'it could not be delivered'::text
                WHEN 'no_target'::text THEN 'its target is gone'::text
                ELSE c.parked_reason
            END) || '; redrive it'::text)
            WHEN 'moving'::text THEN (('Moving to '::text || COALESCE(( SELECT x.label
               FROM rouse.runners x
              WHERE ((x.id = (((e.dispatch_policy -> 'targets'::text) -> 0) ->> 'runnerId'::text)) AND (x.service_id = e.service_id))), ( SELECT x.name
               FROM rouse.worker_pools x
              WHERE ((x.id = (((e.dispatch_policy -> 'targets'::text) -> 0) ->> 'workerPoolId'::text)) AND (x.service_id = e.service_id))), (((e.dispatch_policy -> 'targets'::text) -> 0) ->> 'type'::text), 'nobody'::text)) || '...'::text)
            WHEN 'running'::text THEN ('Running'::text || COALESCE((' on '::text || r.label), ''::text))
            WHEN 'waiting_for_pool'::text THEN (('Waiting for a runner of '::text || w.name) || '...'::text)
            WHEN 'waiting_for_capacity'::text THEN (('Waiting for capacity of '::text || w.name) || '...'::text)
            WHEN 'waiting_for_runner'::text THEN 'Waiting for runner...'::text
            WHEN 'runner_syncing'::text THEN 'Runner syncing pending work...'::text
            WHEN 'no_target'::text THEN 'Waiting for a dispatch target'::text
            WHEN 'delivery_failed'::text THEN 'Delivery failed — check its wakes'::text
            WHEN 'delivering'::text THEN 'Delivering pending work...'::text
            WHEN 'failed'::text THEN 'Run failed — check logs'::text
            WHEN 'waiting_for_input'::text THEN 'Waiting for input'::text
            ELSE NULL::text
        END AS display,
    w.id AS pool_id,
    w.name AS pool_name,
        CASE
            WHEN ((c.state)::text = 'waking'::text) THEN (c.target_index)::integer
            ELSE 0
        END AS target_index,
    c.attempts AS attempt,
    c.parked_at,
    c.parked_reason,
    c.release_by
   FROM ((((((((((((rouse.entities e
     LEFT JOIN rouse.consumers c ON ((c.id = e.consumer_id)))
     LEFT JOIN rouse.entity_dispatch_state d ON (((d.service_id = e.service_id) AND (d.entity_url = e.url))))
     CROSS JOIN LATERAL ( SELECT COALESCE(d.outstanding_wake_target, ((e.dispatch_policy -> 'targets'::text) -> 0)) AS target) t)
     LEFT JOIN rouse.runners r ON (((r.service_id = e.service_id) AND (r.id = COALESCE(d.active_runner_id, (t.target ->> 'runnerId'::text))))))
     LEFT JOIN rouse.runner_runtime_diagnostics g ON (((g.service_id = r.service_id) AND (g.runner_id = r.id))))
     LEFT JOIN rouse.worker_pools w ON (((w.service_id = e.service_id) AND (w.id = COALESCE(c.pool_id, (t.target ->> 'workerPoolId'::text))))))
     CROSS JOIN LATERAL ( SELECT ((r.admin_status = 'enabled'::text) AND COALESCE((g.liveness_lease_expires_at > clock_timestamp()), false)) AS online) l)
     CROSS JOIN LATERAL ( SELECT ((d.outstanding_wake_id IS NOT NULL) OR (EXISTS ( SELECT
                   FROM (rouse.consumer_streams cs
                     JOIN rouse.streams s ON ((s.id = cs.stream_id)))
                  WHERE ((cs.consumer_id = e.consumer_id) AND (s.actionable > cs.acked) AND (s.path IS NOT NULL))))) AS pending) p)
     CROSS JOIN LATERAL ( SELECT (EXISTS ( SELECT
                   FROM rouse.wake_notifications n
                  WHERE ((n.wake_id = d.outstanding_wake_id) AND ((n.delivery_status)::text = 'failed'::text)))) AS failed) f)
     CROSS JOIN LATERAL ( SELECT ((w.admin_status = 'enabled'::text) AND (EXISTS ( SELECT
                   FROM ((rouse.worker_pool_members b
                     JOIN rouse.runners q ON (((q.id = b.runner_id) AND (q.service_id = b.service_id) AND (q.admin_status = 'enabled'::text))))
                     JOIN rouse.runner_runtime_diagnostics h ON (((h.runner_id = b.runner_id) AND (h.service_id = b.service_id))))
                  WHERE ((b.pool_id = w.id) AND (b.service_id = w.service_id) AND (b.status = 'active'::text) AND (h.liveness_lease_expires_at > clock_timestamp()))))) AS online) m)
     LEFT JOIN LATERAL ( SELECT (count(*) >= LEAST((w.max_total_claims)::bigint,
                CASE
                    WHEN (w.max_concurrent_claims_per_runner IS NOT NULL) THEN (w.max_concurrent_claims_per_runner * ( SELECT count(*) AS count
                       FROM rouse.worker_pool_members b
                      WHERE ((b.pool_id = w.id) AND (b.service_id = w.service_id) AND (b.status = 'active'::text))))
                    ELSE NULL::bigint
                END)) AS used
           FROM rouse.consumer_claims k_1
          WHERE ((k_1.pool_id = w.id) AND (k_1.service_id = w.service_id) AND ((k_1.status)::text = 'active'::text) AND (k_1.lease_expires_at > clock_timestamp()) AND ((w.max_total_claims IS NOT NULL) OR (w.max_concurrent_claims_per_runner IS NOT NULL)))) u ON ((p.pending AND ((e.status)::text <> 'running'::text) AND (w.id IS NOT NULL))))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN ((e.status)::text = ANY (ARRAY['killed'::text, 'stopped'::text, 'stopping'::text, 'paused'::text, 'spawning'::text])) THEN (e.status)::text
                    WHEN (c.parked_at IS NOT NULL) THEN 'parked'::text
                    WHEN (c.release_by IS NOT NULL) THEN 'moving'::text
                    WHEN ((e.status)::text = 'running'::text) THEN 'running'::text
                    WHEN (p.pending AND (w.id IS NOT NULL) AND (NOT m.online)) THEN 'waiting_for_pool'::text
                    WHEN (p.pending AND (w.id IS NOT NULL) AND ((c.look_at IS NOT NULL) OR u.used)) THEN 'waiting_for_capacity'::text
                    WHEN (p.pending AND (w.id IS NOT NULL)) THEN 'runner_syncing'::text
                    WHEN (p.pending AND (r.id IS NOT NULL) AND (NOT l.online)) THEN 'waiting_for_runner'::text
                    WHEN (p.pending AND (r.id IS NOT NULL)) THEN 'runner_syncing'::text
                    WHEN (p.pending AND (t.target IS NULL)) THEN 'no_target'::text
                    WHEN (p.pending AND f.failed) THEN 'delivery_failed'::text
                    WHEN p.pending THEN 'delivering'::text
                    WHEN (d.last_error IS NOT NULL) THEN 'failed'::text
                    ELSE 'waiting_for_input'::text
                END AS code) k);

COMMENT ON VIEW rouse.entity_display IS 'The one line a UI shows for an entity, with the facts it is made of.';

CREATE FUNCTION rouse.entity_display_get(p_service_id integer, p_url text) RETURNS SETOF rouse.entity_display
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_display_get(p_service_id integer, p_url text) IS 'What a UI says about one entity.';

CREATE FUNCTION rouse.entity_display_list(p_service_id integer, p_urls text[]) RETURNS TABLE(url text, code text, display text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_display_list(p_service_id integer, p_urls text[]) IS 'What a UI says about each of some entities.';

CREATE FUNCTION rouse.entity_error_stream(p_service_id integer, p_url text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) RETURNS TABLE(outcome text, stream_id bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_error_stream(p_service_id integer, p_url text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) IS 'Makes an entity''s error stream at its holder''s first write.';

CREATE FUNCTION rouse.entity_fork(p_service_id integer, p_principal text, p_by text, p_parent text, p_whole boolean, p_sources text[], p_targets text[], p_parents text[], p_args text[], p_tails bigint[], p_at bigint[], p_prefix bytea[], p_counts integer[], p_stamps text[], p_observe boolean[], p_tags jsonb, p_row_of integer[], p_rows text[], p_attached_to integer[], p_attached text[], p_shared_by integer[], p_shared text[], p_shared_as text[], p_wake_condition text, p_wake_debounce_ms integer, p_wake_timeout_ms integer, p_wake_response boolean, p_wake_key text, p_message text) RETURNS TABLE(outcome text, detail text, entity rouse.entities)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_fork(p_service_id integer, p_principal text, p_by text, p_parent text, p_whole boolean, p_sources text[], p_targets text[], p_parents text[], p_args text[], p_tails bigint[], p_at bigint[], p_prefix bytea[], p_counts integer[], p_stamps text[], p_observe boolean[], p_tags jsonb, p_row_of integer[], p_rows text[], p_attached_to integer[], p_attached text[], p_shared_by integer[], p_shared text[], p_shared_as text[], p_wake_condition text, p_wake_debounce_ms integer, p_wake_timeout_ms integer, p_wake_response boolean, p_wake_key text, p_message text) IS 'Forks a tree of entities in one transaction.';

CREATE FUNCTION rouse.entity_gate(p_service_id integer[], p_url text[], p_type text[], p_principal text[]) RETURNS TABLE(url text, status text, allowed boolean, type_name text, schema_revision integer, inbox_schemas jsonb, type_exists boolean)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_gate(p_service_id integer[], p_url text[], p_type text[], p_principal text[]) IS 'Status, right to write and message schemas of many entities.';

CREATE FUNCTION rouse.entity_get(p_service_id integer, p_url text) RETURNS SETOF rouse.entities
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_get(p_service_id integer, p_url text) IS 'Looks an entity up by url.';

CREATE FUNCTION rouse.entity_held(p_service_id integer, p_url text, p_principal text) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_held(p_service_id integer, p_url text, p_principal text) IS 'Whether a principal holds the live claim of an entity.';

CREATE FUNCTION rouse.entity_list(p_service_id integer, p_principal text, p_type text, p_status text, p_parent text, p_created_by text, p_before_at timestamp with time zone, p_before_url text, p_limit integer) RETURNS SETOF rouse.entities
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_custom_plan'
    AS …;

COMMENT ON FUNCTION rouse.entity_list(p_service_id integer, p_principal text, p_type text, p_status text, p_parent text, p_created_by text, p_before_at timestamp with time zone, p_before_url text, p_limit integer) IS 'Entities, newest first, by page.';

CREATE FUNCTION rouse.entity_move(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text) RETURNS TABLE(outcome text, txid bigint, release_by timestamp with time zone)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_move(p_service_id integer, p_url text, p_principal text, p_trusted boolean, p_policy jsonb, p_deadline_ms bigint, p_reason text) IS 'Gives an entity another dispatch policy and hands over what is held.';

CREATE TABLE rouse.entity_policy_history (
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    revision integer NOT NULL,
    dispatch_policy jsonb,
    moved_by text NOT NULL,
    reason text,
    replaced_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE rouse.entity_policy_history IS 'The dispatch policies that an entity had before, oldest revision first.';

CREATE FUNCTION rouse.entity_policy_page(p_service_id integer, p_url text, p_before bigint, p_limit integer) RETURNS SETOF rouse.entity_policy_history
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_policy_page(p_service_id integer, p_url text, p_before bigint, p_limit integer) IS 'The dispatch policies an entity had before, newest first.';

CREATE FUNCTION rouse.entity_principal(p_service_id integer, p_url text, p_path text, p_kind text, p_id text) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_principal(p_service_id integer, p_url text, p_path text, p_kind text, p_id text) IS 'Makes the entity of a principal.';

CREATE FUNCTION rouse.entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_redrive(p_service_id integer, p_url text, p_principal text, p_trusted boolean) IS 'Lets parked work go on.';

CREATE FUNCTION rouse.entity_resume(p_service_id integer, p_url text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_resume(p_service_id integer, p_url text) IS 'Lets a paused entity go on.';

CREATE FUNCTION rouse.entity_route(p_service_id integer, p_url text) RETURNS TABLE(target_index smallint, attempts integer, pool_id text, parked_at timestamp with time zone, parked_reason text, release_by timestamp with time zone)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_route(p_service_id integer, p_url text) IS 'Where an entity''s work stands among its targets.';

CREATE FUNCTION rouse.entity_signal(p_service_id integer, p_url text, p_principal text, p_signal text, p_key text, p_reason text, p_payload jsonb) RETURNS TABLE(outcome text, txid bigint, previous_state text, new_state text, created_at timestamp with time zone)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_signal(p_service_id integer, p_url text, p_principal text, p_signal text, p_key text, p_reason text, p_payload jsonb) IS 'Signals an entity.';

CREATE FUNCTION rouse.entity_spawn(p_service_id integer, p_url text, p_type text, p_type_revision integer, p_principal text, p_system boolean, p_open boolean, p_args jsonb, p_tags jsonb, p_parent text, p_policy jsonb, p_sandbox jsonb, p_created text, p_message text, p_lease_ms integer DEFAULT 30000, p_wake_ms integer DEFAULT 30000, p_grants jsonb DEFAULT NULL::jsonb) RETURNS TABLE(outcome text, txid bigint, entity rouse.entities)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_spawn(p_service_id integer, p_url text, p_type text, p_type_revision integer, p_principal text, p_system boolean, p_open boolean, p_args jsonb, p_tags jsonb, p_parent text, p_policy jsonb, p_sandbox jsonb, p_created text, p_message text, p_lease_ms integer, p_wake_ms integer, p_grants jsonb) IS 'Makes an entity with its stream, mutex, cursor and dispatch state in one transaction.';

CREATE FUNCTION rouse.entity_state_gate(p_service_id integer[], p_url text[], p_known text[]) RETURNS TABLE(consumer_id bigint, version text, state_schemas jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_state_gate(p_service_id integer[], p_url text[], p_known text[]) IS 'Mutex and state schemas of many entities.';

CREATE FUNCTION rouse.entity_tag_put(p_service_id integer, p_url text, p_principal text, p_key text, p_value text, p_event text) RETURNS TABLE(outcome text, txid bigint, entity rouse.entities)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_tag_put(p_service_id integer, p_url text, p_principal text, p_key text, p_value text, p_event text) IS 'Sets or removes one tag of an entity.';

CREATE FUNCTION rouse.entity_tree(p_service_id integer, p_url text, p_principal text, p_limit integer) RETURNS TABLE(entity rouse.entities, stream_id bigint, tail bigint, head bigint, allowed boolean, shared text[])
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_tree(p_service_id integer, p_url text, p_principal text, p_limit integer) IS 'An entity and its descendants.';

CREATE FUNCTION rouse.entity_type_allowed(p_service_id integer, p_principal text, p_permission text, p_names text[]) RETURNS SETOF text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_allowed(p_service_id integer, p_principal text, p_permission text, p_names text[]) IS 'The entity types among some on which a principal has a permission.';

CREATE FUNCTION rouse.entity_type_delete(p_service_id integer, p_name text, p_principal text, p_system boolean) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_delete(p_service_id integer, p_name text, p_principal text, p_system boolean) IS 'Removes an entity type''s registration.';

CREATE TABLE rouse.entity_types (
    service_id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    description text DEFAULT ''::text NOT NULL,
    creation_schema jsonb,
    inbox_schemas jsonb,
    state_schemas jsonb,
    slash_commands jsonb,
    serve_endpoint text,
    default_dispatch_policy jsonb,
    permission_grants jsonb,
    externally_writable_collections jsonb,
    owner_principal text NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY rouse.entity_types REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.entity_types IS 'What an entity type is, without how it is delivered (RFC "Entity type registration").';

CREATE FUNCTION rouse.entity_type_get(p_service_id integer, p_name text) RETURNS SETOF rouse.entity_types
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_get(p_service_id integer, p_name text) IS 'Looks an entity type up by name.';

CREATE FUNCTION rouse.entity_type_list(p_service_id integer, p_owner text) RETURNS SETOF rouse.entity_types
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_list(p_service_id integer, p_owner text) IS 'The entity types of a service.';

CREATE FUNCTION rouse.entity_type_patch_schemas(p_service_id integer, p_name text, p_principal text, p_system boolean, p_inbox_schemas jsonb, p_state_schemas jsonb) RETURNS TABLE(outcome text, txid bigint, taken_key text, entity_type rouse.entity_types)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_patch_schemas(p_service_id integer, p_name text, p_principal text, p_system boolean, p_inbox_schemas jsonb, p_state_schemas jsonb) IS 'Adds schemas to an entity type.';

CREATE FUNCTION rouse.entity_type_put(p_service_id integer, p_name text, p_principal text, p_system boolean, p_description text, p_creation_schema jsonb, p_inbox_schemas jsonb, p_state_schemas jsonb, p_slash_commands jsonb, p_serve_endpoint text, p_default_dispatch_policy jsonb, p_permission_grants jsonb, p_externally_writable_collections jsonb) RETURNS TABLE(outcome text, txid bigint, entity_type rouse.entity_types)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_type_put(p_service_id integer, p_name text, p_principal text, p_system boolean, p_description text, p_creation_schema jsonb, p_inbox_schemas jsonb, p_state_schemas jsonb, p_slash_commands jsonb, p_serve_endpoint text, p_default_dispatch_policy jsonb, p_permission_grants jsonb, p_externally_writable_collections jsonb) IS 'Registers or replaces an entity type.';

CREATE FUNCTION rouse.entity_wakes(p_service_id integer, p_url text, p_before bigint, p_limit integer) RETURNS SETOF rouse.wake_notifications
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.entity_wakes(p_service_id integer, p_url text, p_before bigint, p_limit integer) IS 'The wakes of one entity, newest first.';

CREATE FUNCTION rouse.epochs_raise(p_reason text) RETURNS bigint
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.epochs_raise(p_reason text) IS 'Sets the floor of epochs above all that are known. To be called after a restore that Postgres does not know of.';

CREATE FUNCTION rouse.grant_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id bigint) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.grant_delete(p_service_id integer, p_url text, p_principal text, p_by text, p_id bigint) IS 'Takes a grant on an entity back.';

CREATE TABLE rouse.entity_grants (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    permission text NOT NULL,
    subject_kind text NOT NULL,
    subject_value text NOT NULL COLLATE pg_catalog."C",
    propagation text DEFAULT 'self'::text NOT NULL,
    copy_to_children boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT entity_grants_permission_check CHECK ((permission = ANY (ARRAY['read'::text, 'write'::text, 'delete'::text, 'signal'::text, 'fork'::text, 'schedule'::text, 'spawn'::text, 'manage'::text]))),
    CONSTRAINT entity_grants_propagation_check CHECK ((propagation = ANY (ARRAY['self'::text, 'descendants'::text]))),
    CONSTRAINT entity_grants_subject_kind_check CHECK ((subject_kind = ANY (ARRAY['principal'::text, 'principal_kind'::text])))
);

COMMENT ON TABLE rouse.entity_grants IS 'Permissions given on one entity to a principal or to a kind of principals, for itself or for its descendants too.';

COMMENT ON COLUMN rouse.entity_grants.subject_value IS 'A principal''s URL, or a kind: user, agent, service, system.';

COMMENT ON COLUMN rouse.entity_grants.copy_to_children IS 'A child gets a grant of its own, of the same content, when it is spawned.';

CREATE FUNCTION rouse.grant_list(p_service_id integer, p_url text) RETURNS SETOF rouse.entity_grants
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.grant_list(p_service_id integer, p_url text) IS 'The grants on one entity.';

CREATE FUNCTION rouse.grant_put(p_service_id integer, p_url text, p_principal text, p_by text, p_grant jsonb) RETURNS TABLE(outcome text, txid bigint, grant_row rouse.entity_grants)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.grant_put(p_service_id integer, p_url text, p_principal text, p_by text, p_grant jsonb) IS 'Adds a grant on an entity.';

CREATE FUNCTION rouse.grant_type_delete(p_service_id integer, p_name text, p_principal text, p_by text, p_id bigint) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.grant_type_delete(p_service_id integer, p_name text, p_principal text, p_by text, p_id bigint) IS 'Takes a grant on an entity type back.';

CREATE TABLE rouse.entity_type_grants (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    entity_type text NOT NULL COLLATE pg_catalog."C",
    permission text NOT NULL,
    subject_kind text NOT NULL,
    subject_value text NOT NULL COLLATE pg_catalog."C",
    expires_at timestamp with time zone,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT entity_type_grants_permission_check CHECK ((permission = ANY (ARRAY['spawn'::text, 'manage'::text]))),
    CONSTRAINT entity_type_grants_subject_kind_check CHECK ((subject_kind = ANY (ARRAY['principal'::text, 'principal_kind'::text])))
);

ALTER TABLE ONLY rouse.entity_type_grants REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.entity_type_grants IS 'Who may spawn or manage an entity type beside its registrar.';

CREATE FUNCTION rouse.grant_type_list(p_service_id integer, p_name text) RETURNS SETOF rouse.entity_type_grants
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.grant_type_list(p_service_id integer, p_name text) IS 'The grants on one entity type.';

CREATE FUNCTION rouse.grant_type_put(p_service_id integer, p_name text, p_principal text, p_by text, p_grant jsonb) RETURNS TABLE(outcome text, grant_row rouse.entity_type_grants)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.grant_type_put(p_service_id integer, p_name text, p_principal text, p_by text, p_grant jsonb) IS 'Adds a grant on an entity type.';

CREATE FUNCTION rouse.leases_clip() RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.leases_clip() IS 'Shortens leases that end later than they could be given now: the clock was set back.';

CREATE FUNCTION rouse.manifest_apply(p_id bigint, p_from bigint, p_to bigint, p_effects jsonb) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.manifest_apply(p_id bigint, p_from bigint, p_to bigint, p_effects jsonb) IS 'Carries out what an entity has written into its manifest.';

CREATE FUNCTION rouse.membership_apply(p_limit integer) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.membership_apply(p_limit integer) IS 'Tells membership streams of changed entities.';

CREATE FUNCTION rouse.membership_check(p_older_ms integer, p_limit integer) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.membership_check(p_older_ms integer, p_limit integer) IS 'Compares a membership stream with the entities there are.';

CREATE FUNCTION rouse.membership_ensure(p_service_id integer, p_principal text, p_trusted boolean, p_ref text, p_tags jsonb) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.membership_ensure(p_service_id integer, p_principal text, p_trusted boolean, p_ref text, p_tags jsonb) IS 'Makes a membership stream.';

CREATE FUNCTION rouse.membership_fill(p_service_id integer, p_ref text, p_limit integer) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.membership_fill(p_service_id integer, p_ref text, p_limit integer) IS 'Fills a new membership stream.';

CREATE FUNCTION rouse.observation_next() RETURNS bigint
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observation_next() IS 'Milliseconds until the next due time of observation.';

CREATE FUNCTION rouse.observe_attach(p_after bigint, p_limit integer) RETURNS TABLE(last_id bigint, waiting integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_attach(p_after bigint, p_limit integer) IS 'Gives cursors that waited for their source its stream.';

CREATE FUNCTION rouse.observe_back(p_stream_id bigint, p_position bigint, p_bytes integer) RETURNS TABLE("position" bigint, payload bytea)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_back(p_stream_id bigint, p_position bigint, p_bytes integer) IS 'A page of a stream, backwards from a position.';

CREATE FUNCTION rouse.observe_manifest(p_service_id integer, p_url text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_manifest(p_service_id integer, p_url text) IS 'Makes sure that an entity''s manifest rows are read.';

CREATE FUNCTION rouse.observe_may(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_checked boolean DEFAULT false) RETURNS text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_may(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_checked boolean) IS 'Whether a caller may have an entity woken by a source.';

CREATE FUNCTION rouse.observe_move(p_ids bigint[], p_from bigint[], p_was text[], p_due boolean[], p_to bigint[], p_states text[], p_due_ms integer[], p_over boolean[], p_rows text[], p_of integer[], p_wait boolean) RETURNS TABLE(id bigint, outcome text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_move(p_ids bigint[], p_from bigint[], p_was text[], p_due boolean[], p_to bigint[], p_states text[], p_due_ms integer[], p_over boolean[], p_rows text[], p_of integer[], p_wait boolean) IS 'Moves cursors and appends the wakes found, in one transaction.';

CREATE FUNCTION rouse.observe_register(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_condition text, p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text, p_expression text DEFAULT NULL::text, p_timezone text DEFAULT NULL::text, p_checked boolean DEFAULT false) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_register(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_condition text, p_debounce_ms integer, p_timeout_ms integer, p_include_response boolean, p_manifest_key text, p_expression text, p_timezone text, p_checked boolean) IS 'Registers what an entity is woken by.';

CREATE FUNCTION rouse.observe_take(p_after bigint, p_limit integer, p_bytes integer) RETURNS TABLE(id bigint, service_id integer, kind text, subscriber_url text, source_path text, source_url text, condition text, one_shot boolean, debounce_ms integer, include_response boolean, principal text, state text, due boolean, stream_id bigint, acked bigint, tail bigint, over boolean, ended boolean, source_entity text, source_type text, source_parent text, positions bigint[], payloads bytea[])
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_take(p_after bigint, p_limit integer, p_bytes integer) IS 'Cursors with something to do, each with what follows it.';

CREATE FUNCTION rouse.observe_unregister(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_manifest_key text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.observe_unregister(p_service_id integer, p_principal text, p_trusted boolean, p_subscriber text, p_source text, p_manifest_key text) IS 'Removes what an entity is woken by.';

CREATE FUNCTION rouse.parked_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer) RETURNS TABLE(entity_url text, type text, reason text, parked_at timestamp with time zone, pending_since timestamp with time zone, attempts integer, last_error text, dispatch_policy jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.parked_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer) IS 'Parked work, by url.';

CREATE FUNCTION rouse.parked_redrive(p_service_id integer, p_principal text, p_system boolean, p_type text, p_reason text, p_limit integer) RETURNS integer
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.parked_redrive(p_service_id integer, p_principal text, p_system boolean, p_type text, p_reason text, p_limit integer) IS 'Redrives parked work.';

CREATE FUNCTION rouse.pool_delete(p_service_id integer, p_id text, p_principal text, p_system boolean) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_delete(p_service_id integer, p_id text, p_principal text, p_system boolean) IS 'Removes a worker pool.';

CREATE FUNCTION rouse.pool_get(p_service_id integer, p_id text) RETURNS TABLE(pool rouse.worker_pools, members jsonb, active_claims bigint, waiting bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_get(p_service_id integer, p_id text) IS 'A worker pool with its members and its load.';

CREATE FUNCTION rouse.pool_join_rotate(p_service_id integer, p_id text, p_principal text, p_system boolean) RETURNS TABLE(outcome text, txid bigint, join_generation integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_join_rotate(p_service_id integer, p_id text, p_principal text, p_system boolean) IS 'Ends the join tokens of a pool.';

CREATE FUNCTION rouse.pool_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer) RETURNS TABLE(pool rouse.worker_pools, members jsonb, active_claims bigint, waiting bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.pool_list(p_service_id integer, p_principal text, p_system boolean, p_after text, p_limit integer) IS 'The worker pools that a principal has to do with.';

CREATE FUNCTION rouse.pool_member_delete(p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_member_delete(p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean) IS 'Takes a runner out of a pool.';

CREATE FUNCTION rouse.pool_member_put(p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean, p_status text, p_invited boolean) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_member_put(p_service_id integer, p_pool_id text, p_runner_id text, p_principal text, p_system boolean, p_status text, p_invited boolean) IS 'Adds, accepts, drains or takes back a pool''s member.';

CREATE FUNCTION rouse.pool_put(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_name text, p_admin_status text, p_max_per_runner integer, p_max_total integer, p_limits_given boolean) RETURNS TABLE(outcome text, txid bigint, pool rouse.worker_pools)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_put(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_name text, p_admin_status text, p_max_per_runner integer, p_max_total integer, p_limits_given boolean) IS 'Makes or changes a worker pool and its wake stream.';

CREATE FUNCTION rouse.pool_reader(p_service_id integer, p_pool_id text, p_principal text, p_system boolean, p_runner_id text) RETURNS TABLE(outcome text, wake_key bytea)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_reader(p_service_id integer, p_pool_id text, p_principal text, p_system boolean, p_runner_id text) IS 'How somebody may read a pool''s wake stream.';

CREATE FUNCTION rouse.pool_visible(p_service_id integer, p_principal text, p_ids text[]) RETURNS SETOF text
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.pool_visible(p_service_id integer, p_principal text, p_ids text[]) IS 'Which pools a principal may see.';

CREATE FUNCTION rouse.retention_adopt(p_limit integer) RETURNS TABLE(seen integer, adopted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_adopt(p_limit integer) IS 'One step of giving entities'' main streams the limits of their type.';

CREATE FUNCTION rouse.retention_audit(p_limit integer, p_age_ms bigint) RETURNS TABLE(deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_audit(p_limit integer, p_age_ms bigint) IS 'Removes the oldest audit rows past an age.';

CREATE FUNCTION rouse.retention_delete(p_service_id integer, p_path text, p_principal text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.retention_delete(p_service_id integer, p_path text, p_principal text) IS 'Removes the limits of a stream.';

CREATE FUNCTION rouse.retention_get(p_service_id integer, p_path text) RETURNS TABLE(kind text, owner text, entity_type text, head bigint, tail bigint, source text, max_age_ms bigint, max_bytes bigint, max_count bigint, sweeping boolean)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.retention_get(p_service_id integer, p_path text) IS 'What is kept of a stream.';

CREATE FUNCTION rouse.retention_put(p_service_id integer, p_path text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_only_new boolean, p_principal text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.retention_put(p_service_id integer, p_path text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_only_new boolean, p_principal text) IS 'Sets the limits of a stream.';

CREATE FUNCTION rouse.retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint) RETURNS TABLE(seen integer, deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_rows(p_walk text, p_limit integer, p_age_ms bigint, p_period_ms bigint) IS 'One step of removing rows that have been over for long.';

CREATE FUNCTION rouse.retention_streams(p_limit integer, p_period_ms bigint) RETURNS TABLE(seen integer, trimmed integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_streams(p_limit integer, p_period_ms bigint) IS 'One step of the walk over the streams with limits.';

CREATE FUNCTION rouse.retention_sweep(p_limit integer) RETURNS TABLE(deleted integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_sweep(p_limit integer) IS 'Deletes messages below the heads of trimmed streams, in bounded steps.';

CREATE FUNCTION rouse.retention_type_get(p_service_id integer, p_type text) RETURNS TABLE(max_age_ms bigint, max_bytes bigint, max_count bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.retention_type_get(p_service_id integer, p_type text) IS 'The limits of the main streams of a type''s entities.';

CREATE FUNCTION rouse.retention_type_put(p_service_id integer, p_type text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_principal text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.retention_type_put(p_service_id integer, p_type text, p_max_age_ms bigint, p_max_bytes bigint, p_max_count bigint, p_principal text) IS 'Sets the limits of the main streams of a type''s entities.';

CREATE FUNCTION rouse.retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint) RETURNS TABLE(seen integer, trimmed integer, more boolean)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    AS …;

COMMENT ON FUNCTION rouse.retention_wake_streams(p_limit integer, p_window_ms bigint, p_period_ms bigint) IS 'One step of the compaction of wake streams.';

CREATE FUNCTION rouse.runner_beat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb) RETURNS TABLE(outcome text, last_seen_at timestamp with time zone, liveness_lease_expires_at timestamp with time zone, lease_ms bigint, wake_stream_offset text, diagnostics jsonb, redelivered integer, pools jsonb)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.runner_beat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb) IS 'Extends a runner''s liveness lease and names its pools.';

CREATE FUNCTION rouse.runner_enroll(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text, p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer, p_wake_key bytea, p_key_id text) RETURNS TABLE(outcome text, txid bigint, runner rouse.runners)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.runner_enroll(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text, p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer, p_wake_key bytea, p_key_id text) IS 'Makes or changes a runner, its wake stream and its key.';

CREATE FUNCTION rouse.runner_get(p_service_id integer, p_id text) RETURNS TABLE(runner rouse.runners, diagnostics rouse.runner_runtime_diagnostics, lease_remaining_ms bigint, active_claims jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_get(p_service_id integer, p_id text) IS 'A runner with its liveness and active claims.';

CREATE FUNCTION rouse.runner_health(p_service_id integer, p_id text) RETURNS TABLE(active bigint, outstanding bigint, oldest_outstanding_ms bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.runner_health(p_service_id integer, p_id text) IS 'What dispatch holds for a runner.';

CREATE FUNCTION rouse.runner_heartbeat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb) RETURNS TABLE(outcome text, last_seen_at timestamp with time zone, liveness_lease_expires_at timestamp with time zone, lease_ms bigint, wake_stream_offset text, diagnostics jsonb, redelivered integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_heartbeat(p_service_id integer, p_runner_id text, p_principal text, p_trusted boolean, p_lease_ms bigint, p_wake_stream_offset text, p_diagnostics jsonb) IS 'Extends a runner''s liveness lease.';

CREATE FUNCTION rouse.runner_list(p_service_id integer, p_owner text, p_after text, p_limit integer) RETURNS TABLE(runner rouse.runners, diagnostics rouse.runner_runtime_diagnostics, lease_remaining_ms bigint, active_claims jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.runner_list(p_service_id integer, p_owner text, p_after text, p_limit integer) IS 'The runners of an owner.';

CREATE FUNCTION rouse.runner_pools(p_service_id integer, p_runner_id text) RETURNS TABLE(pool_id text, wake_stream text, status text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_pools(p_service_id integer, p_runner_id text) IS 'The pools of a runner.';

CREATE FUNCTION rouse.runner_register(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text, p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer) RETURNS TABLE(outcome text, txid bigint, runner rouse.runners)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_register(p_service_id integer, p_id text, p_principal text, p_system boolean, p_owner text, p_label text, p_kind text, p_admin_status text, p_sandbox_profiles jsonb, p_capacity integer) IS 'Makes or changes a runner and its wake stream.';

CREATE FUNCTION rouse.runner_set_status(p_service_id integer, p_id text, p_principal text, p_system boolean, p_admin_status text) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_set_status(p_service_id integer, p_id text, p_principal text, p_system boolean, p_admin_status text) IS 'Enables or disables a runner.';

CREATE FUNCTION rouse.runner_wake_key_put(p_service_id integer, p_id text, p_principal text, p_system boolean, p_wake_key bytea, p_key_id text) RETURNS TABLE(outcome text, txid bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.runner_wake_key_put(p_service_id integer, p_id text, p_principal text, p_system boolean, p_wake_key bytea, p_key_id text) IS 'Sets or removes the key that a runner''s wake streams are sealed to.';

CREATE FUNCTION rouse.schedule_add(p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_message text, p_after_ms bigint, p_producer text) RETURNS void
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.schedule_add(p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_message text, p_after_ms bigint, p_producer text) IS 'Schedules a message.';

CREATE FUNCTION rouse.schedule_plan(p_id bigint, p_due_at timestamp with time zone, p_next timestamp with time zone) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.schedule_plan(p_id bigint, p_due_at timestamp with time zone, p_next timestamp with time zone) IS 'Sets when a cron stream ticks first.';

CREATE FUNCTION rouse.schedule_postpone(p_id bigint, p_due_at timestamp with time zone, p_ms integer) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.schedule_postpone(p_id bigint, p_due_at timestamp with time zone, p_ms integer) IS 'Lets a task be due again later.';

CREATE FUNCTION rouse.schedule_send(p_id bigint, p_due_at timestamp with time zone, p_row text, p_sent text, p_failed text[], p_resume boolean) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.schedule_send(p_id bigint, p_due_at timestamp with time zone, p_row text, p_sent text, p_failed text[], p_resume boolean) IS 'Sends a due message.';

CREATE FUNCTION rouse.schedule_take(p_limit integer) RETURNS TABLE(id bigint, service_id integer, kind text, due_at timestamp with time zone, planned boolean, entity_url text, message text, owner_url text, manifest_key text, manifest text, producer_id text, expression text, timezone text, tick_number bigint, now timestamp with time zone)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.schedule_take(p_limit integer) IS 'Tasks that are due.';

CREATE FUNCTION rouse.schedule_tick(p_id bigint, p_due_at timestamp with time zone, p_row text, p_next timestamp with time zone) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.schedule_tick(p_id bigint, p_due_at timestamp with time zone, p_row text, p_next timestamp with time zone) IS 'Lets a due cron stream tick.';

CREATE FUNCTION rouse.schedule_write(p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_permission text, p_key text, p_row text, p_removed boolean, p_target text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.schedule_write(p_service_id integer, p_principal text, p_trusted boolean, p_url text, p_permission text, p_key text, p_row text, p_removed boolean, p_target text) IS 'Appends a schedule''s row to its entity''s manifest.';

CREATE FUNCTION rouse.service_create(p_name text, p_principal text) RETURNS TABLE(outcome text, service_id integer, created_at timestamp with time zone)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.service_create(p_name text, p_principal text) IS 'Makes a service, the scope that ?service= selects.';

CREATE TABLE rouse.services (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    memberships boolean DEFAULT false NOT NULL,
    CONSTRAINT services_name_check CHECK ((name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'::text))
);

COMMENT ON TABLE rouse.services IS 'A scope with its own streams, entities and runners (RFC "Agent servers"); ?service= selects it.';

COMMENT ON COLUMN rouse.services.memberships IS 'Somebody observes which entities have certain tags: changes of entities are told in membership_changes.';

CREATE FUNCTION rouse.service_get(p_name text) RETURNS SETOF rouse.services
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.service_get(p_name text) IS 'Looks a service up by name.';

CREATE FUNCTION rouse.service_list() RETURNS SETOF rouse.services
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.service_list() IS 'All services.';

CREATE FUNCTION rouse.shape_access(p_service_id integer, p_urls text[]) RETURNS TABLE(snapshot text, url text, created_by text, subjects text[], valid_ms bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.shape_access(p_service_id integer, p_urls text[]) IS 'Who may read some entities, for the log of shapes.';

CREATE FUNCTION rouse.shape_lapsed(p_service_id integer, p_principal text, p_since timestamp with time zone) RETURNS boolean
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.shape_lapsed(p_service_id integer, p_principal text, p_since timestamp with time zone) IS 'Whether time has ended a grant that a shape may build on.';

CREATE FUNCTION rouse.shared_state_admit(p_service_id integer, p_principal text, p_trusted boolean, p_path text, p_permission text, p_owner text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.shared_state_admit(p_service_id integer, p_principal text, p_trusted boolean, p_path text, p_permission text, p_owner text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) IS 'Whether a caller may read or write a shared state.';

CREATE FUNCTION rouse.stream_append(p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[], p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[], s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[], s_payloads bytea[], s_counts integer[], s_stamps text[], s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[], s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[], p_wait boolean) RETURNS TABLE(special boolean, ord integer, outcome text, stream_id bigint, tail bigint, closed boolean, content_type text, producer_epoch bigint, producer_seq bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_append(p_services integer[], p_paths text[], p_types text[], p_internal boolean[], p_actionable boolean[], p_bytes bigint[], p_group integer[], p_rel bigint[], p_payloads bytea[], p_counts integer[], p_stamps text[], s_services integer[], s_paths text[], s_types text[], s_internal boolean[], s_actionable boolean[], s_payloads bytea[], s_counts integer[], s_stamps text[], s_producers text[], s_epochs bigint[], s_seqs bigint[], s_stream_seqs text[], s_closes boolean[], s_consumers bigint[], s_claim_epochs bigint[], s_wakes uuid[], p_wait boolean) IS 'Appends to many streams in one transaction; one outcome a group and a special.';

CREATE FUNCTION rouse.stream_create(p_service integer, p_path text, p_content_type text DEFAULT NULL::text, p_ttl_seconds bigint DEFAULT NULL::bigint, p_expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_closed boolean DEFAULT false, p_payload bytea DEFAULT NULL::bytea, p_count integer DEFAULT 1, p_stamps integer[] DEFAULT NULL::integer[], p_fork_path text DEFAULT NULL::text, p_fork_offset bigint DEFAULT NULL::bigint, p_fork_sub bigint DEFAULT NULL::bigint, p_kind text DEFAULT 'app'::text, p_owner text DEFAULT NULL::text, p_consumer_id bigint DEFAULT NULL::bigint) RETURNS TABLE(outcome text, stream_id bigint, tail bigint, closed boolean, content_type text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_create(p_service integer, p_path text, p_content_type text, p_ttl_seconds bigint, p_expires_at timestamp with time zone, p_closed boolean, p_payload bytea, p_count integer, p_stamps integer[], p_fork_path text, p_fork_offset bigint, p_fork_sub bigint, p_kind text, p_owner text, p_consumer_id bigint) IS 'Creates a stream or a fork; idempotent for the same configuration.';

CREATE FUNCTION rouse.stream_delete(p_service integer, p_path text, p_internal boolean DEFAULT false) RETURNS TABLE(outcome text, stream_id bigint)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_delete(p_service integer, p_path text, p_internal boolean) IS 'Deletes a stream, softly while forks read from it.';

CREATE FUNCTION rouse.stream_head(p_service integer, p_path text) RETURNS TABLE(outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean, ttl_seconds bigint, expires_at timestamp with time zone)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_head(p_service integer, p_path text) IS 'Metadata of a stream.';

CREATE FUNCTION rouse.stream_purge(p_limit integer DEFAULT 10000) RETURNS TABLE(expired integer, messages integer, streams integer)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_purge(p_limit integer) IS 'Retires expired streams and removes rows of retired ones, in bounded steps.';

CREATE FUNCTION rouse.stream_read(p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer DEFAULT 1048576, p_max_rows integer DEFAULT 16384) RETURNS TABLE(outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean, ttl_seconds bigint, expires_at timestamp with time zone, touch boolean, next bigint, page bytea, positions bigint[], stamps text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_read(p_service integer, p_path text, p_stream_id bigint, p_from bigint, p_max_bytes integer, p_max_rows integer) IS 'One bounded page of a stream and its metadata, in one round trip.';

CREATE FUNCTION rouse.stream_show(p_service integer, p_path text) RETURNS TABLE(outcome text, stream_id bigint, kind text, owner text, content_type text, tail bigint, closed boolean, ttl_seconds bigint, expires_at timestamp with time zone, head bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.stream_show(p_service integer, p_path text) IS 'Metadata of a stream, and where it begins.';

CREATE FUNCTION rouse.stream_touch(p_stream_id bigint) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.stream_touch(p_stream_id bigint) IS 'Extends the life of a stream with a time-to-live.';

CREATE FUNCTION rouse.stream_trim(p_service_id integer, p_path text, p_to bigint, p_force boolean, p_principal text) RETURNS TABLE(outcome text, head bigint, tail bigint, limited_by text)
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.stream_trim(p_service_id integer, p_path text, p_to bigint, p_force boolean, p_principal text) IS 'Trims a stream by hand.';

CREATE FUNCTION rouse.stream_writable(p_service_id integer, p_path text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) RETURNS TABLE(outcome text, tail bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.stream_writable(p_service_id integer, p_path text, p_consumer_id bigint, p_epoch bigint, p_wake_id uuid) IS 'Whether a claim may append to a stream now.';

CREATE FUNCTION rouse.subscription_delete(p_service integer, p_id text, p_principal text) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_delete(p_service integer, p_id text, p_principal text) IS 'Ends a subscription.';

CREATE FUNCTION rouse.subscription_get(p_service integer, p_id text, p_streams integer) RETURNS TABLE(consumer_id bigint, consumer_name text, id text, type text, pattern text, wake_stream text, webhook_url text, description text, lease_ttl_ms integer, mount text, owner text, system boolean, status text, last_error text, created_at timestamp with time zone, state text, epoch bigint, wake_id text, holder text, lease_ms bigint, pending boolean, streams jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_get(p_service integer, p_id text, p_streams integer) IS 'A subscription with its mutex and what it watches.';

CREATE FUNCTION rouse.subscription_list(p_service integer, p_owner text, p_after text, p_limit integer) RETURNS TABLE(consumer_id bigint, consumer_name text, id text, type text, pattern text, wake_stream text, webhook_url text, description text, lease_ttl_ms integer, mount text, owner text, system boolean, status text, last_error text, created_at timestamp with time zone, state text, epoch bigint, wake_id text, holder text, lease_ms bigint, pending boolean, streams jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_list(p_service integer, p_owner text, p_after text, p_limit integer) IS 'The subscriptions of a service.';

CREATE FUNCTION rouse.subscription_register(p_service integer, p_id text, p_type text, p_pattern text, p_streams text[], p_wake_stream text, p_webhook_url text, p_target jsonb, p_description text, p_lease_ms integer, p_mount text, p_owner text, p_system boolean) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_register(p_service integer, p_id text, p_type text, p_pattern text, p_streams text[], p_wake_stream text, p_webhook_url text, p_target jsonb, p_description text, p_lease_ms integer, p_mount text, p_owner text, p_system boolean) IS 'Registers or confirms a subscription.';

CREATE FUNCTION rouse.subscription_scan(p_after bigint, p_limit integer) RETURNS TABLE(consumer_id bigint, stream_id bigint, "position" bigint)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_scan(p_after bigint, p_limit integer) IS 'Streams whose idle subscriptions have work nobody was told about.';

CREATE FUNCTION rouse.subscription_settle(p_service integer, p_id text, p_change integer, p_creators text[], p_limit integer, OUT outcome text, OUT change integer, OUT creators text[]) RETURNS record
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_settle(p_service integer, p_id text, p_change integer, p_creators text[], p_limit integer, OUT outcome text, OUT change integer, OUT creators text[]) IS 'Links the streams that existed when a subscription was made.';

CREATE FUNCTION rouse.subscription_target(p_consumer bigint) RETURNS jsonb
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_target(p_consumer bigint) IS 'What the transport of a subscription is handed.';

CREATE FUNCTION rouse.subscription_tidy(p_limit integer) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '1s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_tidy(p_limit integer) IS 'Removes what a deleted subscription leaves.';

CREATE FUNCTION rouse.subscription_unsettled(p_age_ms bigint, p_limit integer) RETURNS TABLE(service_id integer, id text)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_unsettled(p_age_ms bigint, p_limit integer) IS 'Subscriptions that nobody has finished settling.';

CREATE FUNCTION rouse.subscription_unwatch(p_service integer, p_id text, p_principal text, p_path text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_unwatch(p_service integer, p_id text, p_principal text, p_path text) IS 'A subscription no longer names a stream.';

CREATE FUNCTION rouse.subscription_watch(p_service integer, p_id text, p_principal text, p_streams text[]) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.subscription_watch(p_service integer, p_id text, p_principal text, p_streams text[]) IS 'Names more streams for a subscription.';

CREATE FUNCTION rouse.t100_entity_changed() RETURNS trigger
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.t100_entity_changed() IS 'Tells membership streams of a new or changed entity.';

CREATE FUNCTION rouse.user_seen(p_service_id integer, p_id text, p_display_name text, p_email text, p_avatar_url text, p_auth_provider text, p_auth_subject text) RETURNS boolean
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.user_seen(p_service_id integer, p_id text, p_display_name text, p_email text, p_avatar_url text, p_auth_provider text, p_auth_subject text) IS 'Makes or refreshes the row of a person; true when it is new.';

CREATE FUNCTION rouse.wake_get(p_service_id integer, p_wake_id uuid, p_principal text) RETURNS TABLE(wake rouse.wake_notifications, owner text, may boolean, attempts jsonb)
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    AS …;

COMMENT ON FUNCTION rouse.wake_get(p_service_id integer, p_wake_id uuid, p_principal text) IS 'One wake with its delivery attempts.';

CREATE FUNCTION rouse.wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text) RETURNS text
    LANGUAGE …
    SET search_path TO 'rouse', 'pg_temp'
    SET lock_timeout TO '5s'
    AS …;

COMMENT ON FUNCTION rouse.wake_redeliver(p_service_id integer, p_wake_id uuid, p_principal text) IS 'Tells an open wake again at once.';

CREATE FUNCTION rouse.wake_stream_key(p_stream_id bigint) RETURNS bytea
    LANGUAGE … STABLE
    SET search_path TO 'rouse', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS …;

COMMENT ON FUNCTION rouse.wake_stream_key(p_stream_id bigint) IS 'The key that a runner''s wake stream is sealed to.';

ALTER TABLE rouse.audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.barred_pool_members (
    service_id integer NOT NULL,
    pool_id text NOT NULL COLLATE pg_catalog."C",
    runner_id text NOT NULL COLLATE pg_catalog."C",
    barred_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.barred_pool_members IS 'Runners that a worker pool''s owner has taken out. No join token lets them in again until the owner adds them by name or ends the tokens.';

ALTER TABLE rouse.consumers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.consumers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.delivery_attempts (
    service_id integer NOT NULL,
    wake_id uuid NOT NULL,
    attempt integer NOT NULL,
    transport text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    outcome text,
    status_code integer,
    error text,
    CONSTRAINT delivery_attempts_outcome_check CHECK ((outcome = ANY (ARRAY['accepted'::text, 'done'::text, 'retry'::text, 'permanent'::text, 'unknown'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_cost_limit='2000');

COMMENT ON TABLE rouse.delivery_attempts IS 'Each send of a wake by a push transport. Response bodies are not kept.';

CREATE TABLE rouse.entity_attachments (
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    stream_id bigint NOT NULL,
    manifest jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.entity_attachments IS 'Files of an entity. Their bytes are a closed stream each; the manifest row on the entity''s stream says the same for those who follow it.';

CREATE TABLE rouse.entity_effective_permissions (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    source_entity_url text NOT NULL COLLATE pg_catalog."C",
    source_grant_id bigint NOT NULL,
    permission text NOT NULL,
    subject_kind text NOT NULL,
    subject_value text NOT NULL COLLATE pg_catalog."C",
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY rouse.entity_effective_permissions REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.entity_effective_permissions IS 'What each grant comes to: one row for the entity, and one for each descendant if it propagates. Written in the transaction of the grant or of the spawn. An expired row counts no more.';

ALTER TABLE rouse.entity_effective_permissions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.entity_effective_permissions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE rouse.entity_grants ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.entity_grants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE rouse.entity_type_grants ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.entity_type_grants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.epoch_floors (
    n integer NOT NULL,
    timeline integer NOT NULL,
    floor bigint NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.epoch_floors IS 'From which epoch on wakes are made, the newest last: one row for each timeline of the database''s log that was seen, and each restore by hand.';

COMMENT ON COLUMN rouse.epoch_floors.timeline IS 'The timeline of the server''s write-ahead log. Each promotion and each restore to a point in time begins a new one.';

CREATE TABLE rouse.membership_changes (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C"
);

COMMENT ON TABLE rouse.membership_changes IS 'Entities whose membership is to be looked at again; written in the transaction of their change.';

ALTER TABLE rouse.membership_changes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.membership_changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.membership_members (
    membership_id bigint NOT NULL,
    entity_url text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL
);

COMMENT ON TABLE rouse.membership_members IS 'What a membership stream shows at its tail.';

ALTER TABLE rouse.memberships ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.memberships_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.messages (
    stream_id bigint NOT NULL,
    "position" bigint NOT NULL,
    payload bytea NOT NULL,
    count integer DEFAULT 1 NOT NULL,
    stamps integer[]
)
WITH (autovacuum_vacuum_insert_scale_factor='0.1', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_cost_limit='2000', toast.autovacuum_vacuum_scale_factor='0.02', toast.autovacuum_vacuum_cost_limit='2000');
ALTER TABLE ONLY rouse.messages ALTER COLUMN payload SET COMPRESSION lz4;

COMMENT ON TABLE rouse.messages IS 'A row holds what one append brought. position counts the stream''s bytes through the end of it. A JSON array becomes its elements, joined by commas; count says how many.';

COMMENT ON COLUMN rouse.messages.stamps IS 'Byte positions in payload right after "headers":{ of State Protocol messages, where a read splices in their offset.';

CREATE TABLE rouse.observers (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    stream_id bigint,
    kind text NOT NULL,
    subscriber_url text NOT NULL COLLATE pg_catalog."C",
    acked bigint NOT NULL,
    behind boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    source_path text NOT NULL COLLATE pg_catalog."C",
    source_url text NOT NULL COLLATE pg_catalog."C",
    principal text NOT NULL,
    trusted boolean DEFAULT false NOT NULL,
    condition text DEFAULT ''::text NOT NULL,
    one_shot boolean DEFAULT false NOT NULL,
    debounce_ms integer DEFAULT 0 NOT NULL,
    timeout_ms integer DEFAULT 0 NOT NULL,
    include_response boolean DEFAULT true NOT NULL,
    manifest_key text COLLATE pg_catalog."C",
    state text,
    due_at timestamp with time zone,
    CONSTRAINT observers_debounce_ms_check CHECK ((debounce_ms >= 0)),
    CONSTRAINT observers_kind_check CHECK ((kind = ANY (ARRAY['wake'::text, 'manifest'::text]))),
    CONSTRAINT observers_timeout_ms_check CHECK ((timeout_ms >= 0))
)
WITH (fillfactor='70');

COMMENT ON TABLE rouse.observers IS 'Cursors of the server itself over a stream, each evaluating what it reads for one entity: wakes it asked for, manifest rows it wrote.';

COMMENT ON COLUMN rouse.observers.stream_id IS 'Null while the source does not exist; once it does, the cursor begins at its start.';

COMMENT ON COLUMN rouse.observers.behind IS 'As consumer_streams.behind.';

COMMENT ON COLUMN rouse.observers.principal IS 'On whose behalf the source is read; asked again when a source that was waited for appears.';

COMMENT ON COLUMN rouse.observers.condition IS 'JSON text of the condition as the gateway reads it. Text, since what holders write need not be storable as jsonb.';

COMMENT ON COLUMN rouse.observers.state IS 'JSON text: what a debounce has collected so far.';

COMMENT ON COLUMN rouse.observers.due_at IS 'When the collected changes are told, or, while nothing has matched, when the timeout is.';

ALTER TABLE rouse.observers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.observers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.policies (
    name text NOT NULL COLLATE pg_catalog."C",
    lifetime text NOT NULL,
    claim_mode text NOT NULL,
    handshake text NOT NULL,
    retry text NOT NULL,
    late_upload text NOT NULL,
    events text NOT NULL,
    wake_send text NOT NULL,
    wake_done text NOT NULL,
    CONSTRAINT policies_claim_mode_check CHECK ((claim_mode = ANY (ARRAY['pinned'::text, 'pool'::text, 'assigned'::text]))),
    CONSTRAINT policies_events_check CHECK ((events = ANY (ARRAY['free'::text, 'gap_free'::text]))),
    CONSTRAINT policies_handshake_check CHECK ((handshake = ANY (ARRAY['direct'::text, 'offer'::text]))),
    CONSTRAINT policies_late_upload_check CHECK ((late_upload = ANY (ARRAY['never'::text, 'reconcile'::text, 'grant'::text]))),
    CONSTRAINT policies_lifetime_check CHECK ((lifetime = ANY (ARRAY['repeating'::text, 'one_shot'::text]))),
    CONSTRAINT policies_retry_check CHECK ((retry = ANY (ARRAY['rewake'::text, 'explicit'::text, 'auto'::text]))),
    CONSTRAINT policies_sense_check CHECK (((NOT ((lifetime = 'repeating'::text) AND (retry = 'explicit'::text))) AND (NOT ((lifetime = 'one_shot'::text) AND (retry = 'rewake'::text))) AND (NOT ((late_upload = 'grant'::text) AND (events = 'free'::text))))),
    CONSTRAINT policies_wake_done_check CHECK ((wake_done = ANY (ARRAY['on_claim'::text, 'on_consume'::text]))),
    CONSTRAINT policies_wake_send_check CHECK ((wake_send = ANY (ARRAY['at_least_once'::text, 'at_most_once'::text])))
);

COMMENT ON TABLE rouse.policies IS 'How a mutex of a kind behaves. Rows are never changed, only added: a consumer keeps the policy it was made with.';

CREATE TABLE rouse.producer_marks (
    stream_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    tail bigint NOT NULL
);

COMMENT ON TABLE rouse.producer_marks IS 'Since when a stream with producers has had this tail, to tell which are idle.';

CREATE TABLE rouse.producers (
    stream_id bigint NOT NULL,
    producer_id text NOT NULL COLLATE pg_catalog."C",
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    "position" bigint NOT NULL,
    CONSTRAINT producers_epoch_check CHECK (((epoch >= 0) AND (seq >= 0)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.05');

COMMENT ON TABLE rouse.producers IS 'Idempotent producers (Durable Streams 5.2.1): last accepted sequence and the offset it answered; moves in the append''s transaction.';

CREATE TABLE rouse.retention_walks (
    name text NOT NULL COLLATE pg_catalog."C",
    cursor text COLLATE pg_catalog."C",
    started_at timestamp with time zone,
    finished_at timestamp with time zone
);

COMMENT ON TABLE rouse.retention_walks IS 'How far each walk over a table has come. Whoever has locked the row goes on with it; all gateways share them.';

CREATE TABLE rouse.retired_pools (
    service_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    owner_principal text NOT NULL COLLATE pg_catalog."C",
    join_generation integer NOT NULL,
    retired_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.retired_pools IS 'Ids of worker pools that were removed. Only whoever owned one, and the system, makes it again.';

COMMENT ON COLUMN rouse.retired_pools.join_generation IS 'The pool''s last one: no join token of the old pool is good for a new one.';

CREATE TABLE rouse.scheduled_tasks (
    id bigint NOT NULL,
    service_id integer NOT NULL,
    kind text NOT NULL,
    due_at timestamp with time zone,
    planned boolean DEFAULT true NOT NULL,
    entity_url text COLLATE pg_catalog."C",
    message text,
    principal text,
    trusted boolean DEFAULT false NOT NULL,
    owner_url text COLLATE pg_catalog."C",
    manifest_key text COLLATE pg_catalog."C",
    manifest text,
    producer_id text COLLATE pg_catalog."C",
    stream_id bigint,
    expression text,
    timezone text,
    tick_number bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT scheduled_tasks_kind_check CHECK ((kind = ANY (ARRAY['delayed_send'::text, 'cron_tick'::text]))),
    CONSTRAINT scheduled_tasks_sense_check CHECK (
CASE kind
    WHEN 'delayed_send'::text THEN ((entity_url IS NOT NULL) AND (message IS NOT NULL) AND (principal IS NOT NULL) AND ((owner_url IS NULL) = (manifest_key IS NULL)))
    ELSE ((stream_id IS NOT NULL) AND (expression IS NOT NULL) AND (timezone IS NOT NULL))
END)
)
WITH (fillfactor='70');

COMMENT ON TABLE rouse.scheduled_tasks IS 'What is to happen at a time: a message is sent, or a cron stream ticks. A send''s row goes with it; a cron''s stays for its tick number, without a due time while nobody listens.';

COMMENT ON COLUMN rouse.scheduled_tasks.planned IS 'False: due_at is when somebody began to listen, and the first tick is still to be found.';

COMMENT ON COLUMN rouse.scheduled_tasks.message IS 'JSON text of the message''s parts; text for the reason of observers.condition.';

ALTER TABLE rouse.scheduled_tasks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.scheduled_tasks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.schema_history (
    version integer NOT NULL,
    name text NOT NULL,
    compat text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    hash text,
    CONSTRAINT schema_history_compat_check CHECK ((compat = ANY (ARRAY['safe'::text, 'breaking'::text])))
);

COMMENT ON TABLE rouse.schema_history IS 'One row a migration, written in its transaction, so that a binary can judge those it does not know.';

CREATE TABLE rouse.schema_manifest (
    id integer DEFAULT 1 NOT NULL,
    hash text NOT NULL,
    functions integer NOT NULL,
    migration integer NOT NULL,
    release text NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT schema_manifest_id_check CHECK ((id = 1))
);

COMMENT ON TABLE rouse.schema_manifest IS 'Which set of functions is installed, and by which release.';

CREATE TABLE rouse.schema_migrations (
    version bigint NOT NULL,
    dirty boolean NOT NULL
);

ALTER TABLE rouse.services ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME rouse.services_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.shared_state_links (
    service_id integer NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    entity_url text NOT NULL COLLATE pg_catalog."C",
    manifest_key text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE rouse.shared_state_links IS 'Entities a shared state belongs to: who may read or write one of them may read or write it.';

CREATE TABLE rouse.stream_marks (
    stream_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    tail bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');

COMMENT ON TABLE rouse.stream_marks IS 'Where a stream''s tail was at a time. Messages carry no time; everything up to a mark is at least as old as the mark.';

CREATE TABLE rouse.stream_retention (
    stream_id bigint NOT NULL,
    own boolean DEFAULT false NOT NULL,
    entity_type text COLLATE pg_catalog."C",
    max_age_ms bigint,
    max_bytes bigint,
    max_count bigint,
    counted_to bigint DEFAULT 0 NOT NULL,
    counted bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT stream_retention_limits_check CHECK (((max_age_ms > 0) AND (max_bytes > 0) AND (max_count > 0)))
)
WITH (fillfactor='70');

COMMENT ON TABLE rouse.stream_retention IS 'Streams whose messages are not kept for ever. Without own, the limits of the entity''s type hold.';

COMMENT ON COLUMN rouse.stream_retention.own IS 'The limits are this stream''s, not its entity type''s; all null then keeps everything.';

COMMENT ON COLUMN rouse.stream_retention.counted IS 'With a limit by count: messages above the head and up to counted_to.';

CREATE TABLE rouse.stream_trims (
    stream_id bigint NOT NULL,
    swept bigint NOT NULL,
    due_at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');

COMMENT ON TABLE rouse.stream_trims IS 'Streams with messages below their head that are still to be deleted. A stream whose forks read them is looked at again now and then.';

COMMENT ON COLUMN rouse.stream_trims.swept IS 'Everything up to here is deleted.';

ALTER TABLE rouse.streams ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME rouse.streams_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE rouse.subscription_globs (
    consumer_id bigint NOT NULL,
    service_id integer NOT NULL,
    pattern text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL,
    system boolean NOT NULL
);

COMMENT ON TABLE rouse.subscription_globs IS 'The patterns. Sorted, they are a tree of segments, which a new stream''s path is walked down (_glob_find).';

COMMENT ON COLUMN rouse.subscription_globs.pattern IS 'As _glob_parse writes it: a literal segment that is made of asterisks has a control character before it.';

CREATE TABLE rouse.subscription_paths (
    path text NOT NULL COLLATE pg_catalog."C",
    service_id integer NOT NULL,
    consumer_id bigint NOT NULL
);

COMMENT ON TABLE rouse.subscription_paths IS 'Streams a subscription names. A stream that does not exist is linked when it is made.';

CREATE TABLE rouse.subscription_removals (
    consumer_id bigint NOT NULL
);

COMMENT ON TABLE rouse.subscription_removals IS 'Deleted subscriptions whose links are still being removed.';

CREATE TABLE rouse.type_retention (
    service_id integer NOT NULL,
    entity_type text NOT NULL COLLATE pg_catalog."C",
    max_age_ms bigint,
    max_bytes bigint,
    max_count bigint,
    walked bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT type_retention_limits_check CHECK (((max_age_ms > 0) AND (max_bytes > 0) AND (max_count > 0)))
);

COMMENT ON TABLE rouse.type_retention IS 'Limits of the main streams of a type''s entities.';

COMMENT ON COLUMN rouse.type_retention.walked IS 'Stream up to which the entities of the type have their row in stream_retention.';

CREATE TABLE rouse.users (
    service_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    display_name text,
    email text,
    avatar_url text,
    auth_provider text,
    auth_subject text,
    profile jsonb DEFAULT '{}'::jsonb NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY rouse.users REPLICA IDENTITY FULL;

COMMENT ON TABLE rouse.users IS 'A person seen by an auth hook; the row is made on first sight (RFC "Minimal user auth and ownership").';

ALTER TABLE ONLY rouse.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.barred_pool_members
    ADD CONSTRAINT barred_pool_members_pkey PRIMARY KEY (pool_id, runner_id, service_id);

ALTER TABLE ONLY rouse.consumer_claims
    ADD CONSTRAINT consumer_claims_pkey PRIMARY KEY (consumer_id, epoch, service_id);

ALTER TABLE ONLY rouse.consumer_streams
    ADD CONSTRAINT consumer_streams_pkey PRIMARY KEY (consumer_id, stream_id);

ALTER TABLE ONLY rouse.consumers
    ADD CONSTRAINT consumers_name_service_id_key UNIQUE (name, service_id);

ALTER TABLE ONLY rouse.consumers
    ADD CONSTRAINT consumers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.delivery_attempts
    ADD CONSTRAINT delivery_attempts_pkey PRIMARY KEY (service_id, wake_id, attempt);

ALTER TABLE ONLY rouse.entities
    ADD CONSTRAINT entities_pkey PRIMARY KEY (url, service_id);

ALTER TABLE ONLY rouse.entity_attachments
    ADD CONSTRAINT entity_attachments_pkey PRIMARY KEY (entity_url, id, service_id);

ALTER TABLE ONLY rouse.entity_dispatch_state
    ADD CONSTRAINT entity_dispatch_state_pkey PRIMARY KEY (entity_url, service_id);

ALTER TABLE ONLY rouse.entity_effective_permissions
    ADD CONSTRAINT entity_effective_permissions_entity_url_key UNIQUE (entity_url, source_grant_id);

ALTER TABLE ONLY rouse.entity_effective_permissions
    ADD CONSTRAINT entity_effective_permissions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.entity_grants
    ADD CONSTRAINT entity_grants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.entity_policy_history
    ADD CONSTRAINT entity_policy_history_pkey PRIMARY KEY (entity_url, revision, service_id);

ALTER TABLE ONLY rouse.entity_type_grants
    ADD CONSTRAINT entity_type_grants_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.entity_types
    ADD CONSTRAINT entity_types_pkey PRIMARY KEY (service_id, name);

ALTER TABLE ONLY rouse.epoch_floors
    ADD CONSTRAINT epoch_floors_pkey PRIMARY KEY (n);

ALTER TABLE ONLY rouse.membership_changes
    ADD CONSTRAINT membership_changes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.membership_members
    ADD CONSTRAINT membership_members_pkey PRIMARY KEY (membership_id, entity_url);

ALTER TABLE ONLY rouse.memberships
    ADD CONSTRAINT memberships_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.memberships
    ADD CONSTRAINT memberships_ref_key UNIQUE (ref, service_id);

ALTER TABLE ONLY rouse.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (stream_id, "position");

ALTER TABLE ONLY rouse.observers
    ADD CONSTRAINT observers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (name);

ALTER TABLE ONLY rouse.producer_marks
    ADD CONSTRAINT producer_marks_pkey PRIMARY KEY (stream_id);

ALTER TABLE ONLY rouse.producers
    ADD CONSTRAINT producers_pkey PRIMARY KEY (stream_id, producer_id);

ALTER TABLE ONLY rouse.retention_walks
    ADD CONSTRAINT retention_walks_pkey PRIMARY KEY (name);

ALTER TABLE ONLY rouse.retired_pools
    ADD CONSTRAINT retired_pools_pkey PRIMARY KEY (id, service_id);

ALTER TABLE ONLY rouse.runner_runtime_diagnostics
    ADD CONSTRAINT runner_runtime_diagnostics_pkey PRIMARY KEY (runner_id, service_id);

ALTER TABLE ONLY rouse.runners
    ADD CONSTRAINT runners_pkey PRIMARY KEY (id, service_id);

ALTER TABLE ONLY rouse.scheduled_tasks
    ADD CONSTRAINT scheduled_tasks_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.schema_history
    ADD CONSTRAINT schema_history_pkey PRIMARY KEY (version);

ALTER TABLE ONLY rouse.schema_manifest
    ADD CONSTRAINT schema_manifest_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY rouse.services
    ADD CONSTRAINT services_name_key UNIQUE (name);

ALTER TABLE ONLY rouse.services
    ADD CONSTRAINT services_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.shared_state_links
    ADD CONSTRAINT shared_state_links_pkey PRIMARY KEY (path, entity_url, manifest_key, service_id);

ALTER TABLE ONLY rouse.stream_marks
    ADD CONSTRAINT stream_marks_pkey PRIMARY KEY (stream_id, at);

ALTER TABLE ONLY rouse.stream_retention
    ADD CONSTRAINT stream_retention_pkey PRIMARY KEY (stream_id);

ALTER TABLE ONLY rouse.stream_trims
    ADD CONSTRAINT stream_trims_pkey PRIMARY KEY (stream_id);

ALTER TABLE ONLY rouse.streams
    ADD CONSTRAINT streams_path_service_id_key UNIQUE (path, service_id);

ALTER TABLE ONLY rouse.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (id);

ALTER TABLE ONLY rouse.subscription_globs
    ADD CONSTRAINT subscription_globs_pkey PRIMARY KEY (consumer_id);

ALTER TABLE ONLY rouse.subscription_paths
    ADD CONSTRAINT subscription_paths_pkey PRIMARY KEY (path, service_id, consumer_id);

ALTER TABLE ONLY rouse.subscription_removals
    ADD CONSTRAINT subscription_removals_pkey PRIMARY KEY (consumer_id);

ALTER TABLE ONLY rouse.subscriptions
    ADD CONSTRAINT subscriptions_id_service_id_key UNIQUE (id, service_id);

ALTER TABLE ONLY rouse.subscriptions
    ADD CONSTRAINT subscriptions_pkey PRIMARY KEY (consumer_id);

ALTER TABLE ONLY rouse.type_retention
    ADD CONSTRAINT type_retention_pkey PRIMARY KEY (entity_type, service_id);

ALTER TABLE ONLY rouse.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (service_id, id);

ALTER TABLE ONLY rouse.wake_notifications
    ADD CONSTRAINT wake_notifications_pkey PRIMARY KEY (wake_id);

ALTER TABLE ONLY rouse.worker_pool_members
    ADD CONSTRAINT worker_pool_members_pkey PRIMARY KEY (pool_id, runner_id, service_id);

ALTER TABLE ONLY rouse.worker_pools
    ADD CONSTRAINT worker_pools_pkey PRIMARY KEY (id, service_id);

CREATE INDEX audit_log_resource_idx ON rouse.audit_log USING btree (resource, service_id, id);

CREATE UNIQUE INDEX consumer_claims_active_idx ON rouse.consumer_claims USING btree (consumer_id, service_id) WHERE ((status)::text = 'active'::text);

CREATE INDEX consumer_claims_pool_id_active_idx ON rouse.consumer_claims USING btree (pool_id) WHERE (((status)::text = 'active'::text) AND (pool_id IS NOT NULL));

CREATE INDEX consumer_claims_runner_id_active_idx ON rouse.consumer_claims USING btree (runner_id) WHERE (((status)::text = 'active'::text) AND (runner_id IS NOT NULL));

CREATE INDEX consumer_streams_behind_idx ON rouse.consumer_streams USING btree ((
CASE
    WHEN behind THEN consumer_id
    ELSE NULL::bigint
END), stream_id) WHERE behind;

CREATE INDEX consumer_streams_stream_id_idx ON rouse.consumer_streams USING btree (stream_id);

CREATE INDEX consumers_due_at_idx ON rouse.consumers USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE INDEX consumers_parked_idx ON rouse.consumers USING btree (entity_url) WHERE (parked_at IS NOT NULL);

CREATE INDEX entities_created_at_idx ON rouse.entities USING btree (created_at DESC, url);

CREATE INDEX entities_created_by_idx ON rouse.entities USING btree (created_by, created_at DESC, url);

CREATE INDEX entities_parent_idx ON rouse.entities USING btree (parent, service_id) WHERE (parent IS NOT NULL);

CREATE INDEX entities_tags_idx ON rouse.entities USING gin (tags jsonb_path_ops);

CREATE INDEX entity_attachments_stream_id_idx ON rouse.entity_attachments USING btree (stream_id);

CREATE INDEX entity_effective_permissions_source_grant_id_idx ON rouse.entity_effective_permissions USING btree (source_grant_id);

CREATE INDEX entity_effective_permissions_subject_idx ON rouse.entity_effective_permissions USING btree (subject_value, permission, entity_url);

CREATE INDEX entity_grants_entity_url_idx ON rouse.entity_grants USING btree (entity_url, service_id);

CREATE INDEX entity_type_grants_entity_type_idx ON rouse.entity_type_grants USING btree (entity_type, service_id);

CREATE INDEX membership_members_entity_url_idx ON rouse.membership_members USING btree (entity_url);

CREATE INDEX memberships_checked_at_idx ON rouse.memberships USING btree (checked_at NULLS FIRST, id);

CREATE INDEX memberships_stream_id_idx ON rouse.memberships USING btree (stream_id);

CREATE INDEX observers_behind_idx ON rouse.observers USING btree (id) WHERE behind;

CREATE INDEX observers_due_at_idx ON rouse.observers USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE UNIQUE INDEX observers_registration_key ON rouse.observers USING btree (subscriber_url, source_path, kind, md5(condition), debounce_ms, timeout_ms, one_shot, COALESCE(manifest_key, ''::text), service_id);

CREATE INDEX observers_stream_id_idx ON rouse.observers USING btree (stream_id);

CREATE INDEX observers_subscriber_url_idx ON rouse.observers USING btree (subscriber_url, service_id);

CREATE INDEX observers_waiting_idx ON rouse.observers USING btree (id) WHERE (stream_id IS NULL);

CREATE INDEX runners_owner_principal_idx ON rouse.runners USING btree (owner_principal, id);

CREATE INDEX scheduled_tasks_due_at_idx ON rouse.scheduled_tasks USING btree (due_at) WHERE (due_at IS NOT NULL);

CREATE UNIQUE INDEX scheduled_tasks_owner_url_manifest_key_key ON rouse.scheduled_tasks USING btree (owner_url, manifest_key, service_id) WHERE (owner_url IS NOT NULL);

CREATE UNIQUE INDEX scheduled_tasks_producer_id_key ON rouse.scheduled_tasks USING btree (producer_id, entity_url, service_id) WHERE (owner_url IS NULL);

CREATE UNIQUE INDEX scheduled_tasks_stream_id_key ON rouse.scheduled_tasks USING btree (stream_id) WHERE (stream_id IS NOT NULL);

CREATE INDEX shared_state_links_entity_url_idx ON rouse.shared_state_links USING btree (entity_url, manifest_key);

CREATE INDEX stream_trims_due_at_idx ON rouse.stream_trims USING btree (due_at);

CREATE INDEX streams_expires_at_idx ON rouse.streams USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX streams_forked_from_idx ON rouse.streams USING btree (forked_from) WHERE (forked_from IS NOT NULL);

CREATE INDEX streams_pending_idx ON rouse.streams USING btree (id) WHERE pending;

CREATE INDEX streams_retired_idx ON rouse.streams USING btree (id) WHERE (path IS NULL);

CREATE INDEX subscription_globs_pattern_idx ON rouse.subscription_globs USING btree (pattern, service_id);

CREATE INDEX subscription_paths_consumer_id_idx ON rouse.subscription_paths USING btree (consumer_id, path);

CREATE INDEX subscriptions_unsettled_idx ON rouse.subscriptions USING btree (consumer_id) WHERE (settled < changes);

CREATE INDEX subscriptions_wake_stream_idx ON rouse.subscriptions USING btree (wake_stream, service_id) WHERE (wake_stream IS NOT NULL);

CREATE INDEX wake_notifications_consumer_id_idx ON rouse.wake_notifications USING btree (consumer_id, epoch);

CREATE INDEX wake_notifications_next_attempt_at_idx ON rouse.wake_notifications USING btree (next_attempt_at) WHERE (next_attempt_at IS NOT NULL);

CREATE INDEX wake_notifications_target_pool_id_open_idx ON rouse.wake_notifications USING btree (target_pool_id, created_at) WHERE ((resolved_at IS NULL) AND (target_pool_id IS NOT NULL));

CREATE INDEX wake_notifications_target_runner_id_open_idx ON rouse.wake_notifications USING btree (target_runner_id, created_at) WHERE ((resolved_at IS NULL) AND (target_runner_id IS NOT NULL));

CREATE INDEX worker_pool_members_owner_principal_idx ON rouse.worker_pool_members USING btree (owner_principal, pool_id);

CREATE INDEX worker_pool_members_runner_id_idx ON rouse.worker_pool_members USING btree (runner_id);

CREATE INDEX worker_pools_owner_principal_idx ON rouse.worker_pools USING btree (owner_principal, id);

CREATE TRIGGER t100_entity_changed AFTER UPDATE ON rouse.entities FOR EACH ROW WHEN (((new.member AND ((new.status)::text IS DISTINCT FROM (old.status)::text)) OR (new.tags IS DISTINCT FROM old.tags))) EXECUTE FUNCTION rouse.t100_entity_changed();

CREATE TRIGGER t100_entity_spawned AFTER INSERT ON rouse.entities FOR EACH ROW EXECUTE FUNCTION rouse.t100_entity_changed();

ALTER TABLE ONLY rouse.barred_pool_members
    ADD CONSTRAINT barred_pool_members_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.consumer_streams
    ADD CONSTRAINT consumer_streams_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id);

ALTER TABLE ONLY rouse.consumers
    ADD CONSTRAINT consumers_policy_fkey FOREIGN KEY (policy) REFERENCES rouse.policies(name);

ALTER TABLE ONLY rouse.entities
    ADD CONSTRAINT entities_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.entity_attachments
    ADD CONSTRAINT entity_attachments_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id);

ALTER TABLE ONLY rouse.entity_effective_permissions
    ADD CONSTRAINT entity_effective_permissions_source_grant_id_fkey FOREIGN KEY (source_grant_id) REFERENCES rouse.entity_grants(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.entity_types
    ADD CONSTRAINT entity_types_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.membership_members
    ADD CONSTRAINT membership_members_membership_id_fkey FOREIGN KEY (membership_id) REFERENCES rouse.memberships(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.memberships
    ADD CONSTRAINT memberships_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.observers
    ADD CONSTRAINT observers_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE SET NULL;

ALTER TABLE ONLY rouse.producer_marks
    ADD CONSTRAINT producer_marks_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.producers
    ADD CONSTRAINT producers_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.retired_pools
    ADD CONSTRAINT retired_pools_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.runners
    ADD CONSTRAINT runners_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.scheduled_tasks
    ADD CONSTRAINT scheduled_tasks_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.stream_marks
    ADD CONSTRAINT stream_marks_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.stream_retention
    ADD CONSTRAINT stream_retention_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.stream_trims
    ADD CONSTRAINT stream_trims_stream_id_fkey FOREIGN KEY (stream_id) REFERENCES rouse.streams(id) ON DELETE CASCADE;

ALTER TABLE ONLY rouse.streams
    ADD CONSTRAINT streams_forked_from_fkey FOREIGN KEY (forked_from) REFERENCES rouse.streams(id);

ALTER TABLE ONLY rouse.users
    ADD CONSTRAINT users_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

ALTER TABLE ONLY rouse.worker_pools
    ADD CONSTRAINT worker_pools_service_id_fkey FOREIGN KEY (service_id) REFERENCES rouse.services(id);

CREATE PUBLICATION rouse_notice WITH (publish = 'insert, update, delete, truncate');

CREATE PUBLICATION rouse_rows WITH (publish = 'insert, update, delete, truncate');

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.consumer_claims (service_id, consumer_id, epoch, wake_id, entity_url, stream_path, runner_id, status, claimed_at, last_heartbeat_at, lease_expires_at, released_at, acked_streams, updated_at, pool_id);

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.entities (service_id, url, type, status, dispatch_policy, tags, spawn_args, sandbox, parent, created_by, type_revision, inbox_schemas, state_schemas, created_at, updated_at);

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.entity_dispatch_state;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.entity_effective_permissions;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.entity_type_grants;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.entity_types;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.runner_runtime_diagnostics;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.runners;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.users;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.wake_notifications (service_id, wake_id, entity_url, target_type, target_runner_id, target_webhook_url, target, runner_wake_stream, runner_wake_stream_offset, notification_public, delivery_status, claim_status, created_at, delivered_at, claimed_at, resolved_at, target_pool_id, target_index, attempt);

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.worker_pool_members;

ALTER PUBLICATION rouse_rows ADD TABLE ONLY rouse.worker_pools;
