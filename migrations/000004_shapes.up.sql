-- compat: safe
-- What UIs sync: the gateway's shapes read these rows from the log, while somebody looks. A table whose rows
-- are few and seldom change says in the log what a changed row was before (replica identity full), so that a
-- shape knows whether the row leaves it. The tables that every wake writes do not pay for that: there a row
-- that no longer matches is announced as gone to every shape that might have held it.

alter table rouse.users replica identity full;
alter table rouse.entity_types replica identity full;
alter table rouse.runners replica identity full;
alter table rouse.runner_runtime_diagnostics replica identity full;

create publication rouse_rows for table
    rouse.users,
    rouse.entity_types,
    rouse.runners,
    rouse.runner_runtime_diagnostics,
    rouse.entities (service_id, url, type, status, dispatch_policy, tags, spawn_args, sandbox, parent, created_by,
        type_revision, inbox_schemas, state_schemas, created_at, updated_at),
    rouse.entity_dispatch_state,
    rouse.wake_notifications (service_id, wake_id, entity_url, target_type, target_runner_id, target_webhook_url, target,
        runner_wake_stream, runner_wake_stream_offset, notification_public, delivery_status, claim_status,
        created_at, delivered_at, claimed_at, resolved_at),
    rouse.consumer_claims (service_id, consumer_id, epoch, wake_id, entity_url, stream_path, runner_id, status,
        claimed_at, last_heartbeat_at, lease_expires_at, released_at, acked_streams, updated_at);
