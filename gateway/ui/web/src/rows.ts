// The rows that the Shape endpoint serves, as the client parses them.

export interface Target {
  type: string
  runnerId?: string
  workerPoolId?: string
  url?: string
  when?: { offline?: boolean; full?: boolean; failed?: boolean; unclaimedAfterMs?: number }
  [more: string]: unknown
}

export interface Policy {
  targets?: Target[]
  giveUp?: { afterMs?: number; attempts?: number }
}

export interface EntityRow {
  url: string
  type: string
  status: string
  dispatch_policy: Policy | null
  tags: Record<string, string> | null
  parent: string | null
  created_by: string
  created_at: bigint
  updated_at: bigint
}

export interface DispatchRow {
  entity_url: string
  pending_reason: string | null
  pending_since: string | null
  outstanding_wake_id: string | null
  outstanding_wake_target: Target | null
  outstanding_wake_created_at: string | null
  active_consumer_id: string | null
  active_runner_id: string | null
  active_epoch: bigint | null
  active_claimed_at: string | null
  active_lease_expires_at: string | null
  last_released_at: string | null
  last_error: string | null
  updated_at: string
}

export interface RunnerRow {
  id: string
  owner_principal: string
  label: string
  kind: string
  admin_status: string
  wake_stream: string
  created_at: string
  updated_at: string
}

export interface DiagnosticsRow {
  runner_id: string
  wake_stream_offset: string | null
  last_seen_at: string | null
  liveness_lease_expires_at: string | null
  diagnostics: Record<string, unknown> | null
}

export interface PoolRow {
  id: string
  name: string
  admin_status: string
}

export interface MemberRow {
  pool_id: string
  runner_id: string
  status: string
}

/** An open wake that a transport gave up on. */
export interface FailedWakeRow {
  wake_id: string
  entity_url: string | null
}

/** A time as rows have it: milliseconds, or what Postgres writes, `2026-11-29 21:00:00.5+00`. */
export type Time = string | number | bigint | null | undefined

/** Answers in milliseconds, NaN for none. */
export function millis(t: Time): number {
  if (typeof t === "number" || typeof t === "bigint") return Number(t)
  if (!t) return NaN
  return Date.parse(t.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00"))
}
