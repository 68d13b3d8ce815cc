// The one line that is said about an entity: the SQL view entity_display in
// TypeScript, from the rows that the Shape endpoint serves. The view's own
// answers for a table of cases are what it is tested against.
import { millis, type DiagnosticsRow, type DispatchRow, type EntityRow, type MemberRow, type PoolRow, type RunnerRow, type Target } from "./rows"

export interface Display {
  code: string
  display: string
  /** The target that is asked now: of the open wake, else the policy's first. */
  target?: Target
  /** Set when the words depend on what is not synced, such as somebody else's runner: the gateway knows them. */
  ask?: boolean
}

export interface Facts {
  entity: EntityRow
  dispatch?: DispatchRow
  runner: (id: string) => RunnerRow | undefined
  diagnostics: (runnerId: string) => DiagnosticsRow | undefined
  pool: (id: string) => PoolRow | undefined
  members: (poolId: string) => MemberRow[]
  /** Whether the open wake was given up by its transport. */
  failed: (wakeId: string) => boolean
  /** How an entity's work was given up, if it was. */
  parked: (url: string) => { reason: string; attempts: number } | undefined
  /** By the gateway's clock, in milliseconds. */
  now: number
}

const fixed: Record<string, string> = {
  killed: "Killed", stopped: "Stopped", stopping: "Stopping...", paused: "Paused", spawning: "Starting...",
}

/** Online is a runner that is enabled and whose liveness lease has not ended. */
export function online(r: RunnerRow | undefined, g: DiagnosticsRow | undefined, now: number): boolean {
  return r?.admin_status === "enabled" && millis(g?.liveness_lease_expires_at) > now
}

function parkedWords({ reason, attempts }: { reason: string; attempts: number }): string {
  const why: Record<string, string> = {
    attempts_exhausted: attempts === 1 ? "tried once" : `tried ${attempts} times`, unclaimed: "nobody took it in time", delivery_failed: "it could not be delivered", no_target: "its target is gone",
  }
  return `Parked — ${why[reason] ?? reason}; redrive it`
}

export function display(f: Facts): Display {
  const { entity: e, dispatch: d } = f
  const first = e.dispatch_policy?.targets?.[0]
  const target = d?.outstanding_wake_target ?? first
  const say = (code: string, display: string, ask?: boolean): Display => ({ code, display, target, ask })
  if (fixed[e.status]) return say(e.status, fixed[e.status])
  const parked = f.parked(e.url)
  if (parked) return say("parked", parkedWords(parked))
  const runnerId = d?.active_runner_id ?? target?.runnerId
  const runner = runnerId ? f.runner(runnerId) : undefined
  const unknownRunner = !!runnerId && !runner
  // Somebody else than the first target's runner holds it: it may be on the move, which no row tells.
  if (e.status === "running") return say("running", runner ? `Running on ${runner.label}` : "Running", unknownRunner || first?.runnerId !== d?.active_runner_id)
  const pending = !!d?.outstanding_wake_id || !!d?.pending_since
  // Without a target no row tells that work has come.
  if (!pending) return d?.last_error ? say("failed", "Run failed — check logs", !first) : say("waiting_for_input", "Waiting for input", !first)
  const pool = target?.workerPoolId ? f.pool(target.workerPoolId) : undefined
  if (pool) {
    const able = f.members(pool.id).filter((m) => m.status === "active")
    if (pool.admin_status === "enabled" && able.some((m) => online(f.runner(m.runner_id), f.diagnostics(m.runner_id), f.now))) {
      return say("runner_syncing", "Runner syncing pending work...", true) // or it waits for room
    }
    return say("waiting_for_pool", `Waiting for a runner of ${pool.name}...`, pool.admin_status === "enabled" && able.some((m) => !f.runner(m.runner_id)))
  }
  if (target?.workerPoolId) return say("delivering", "Delivering pending work...", true)
  if (unknownRunner) return say("delivering", "Delivering pending work...", true)
  if (runner) {
    return online(runner, f.diagnostics(runner.id), f.now)
      ? say("runner_syncing", "Runner syncing pending work...")
      : say("waiting_for_runner", "Waiting for runner...")
  }
  if (!target) return say("no_target", "Waiting for a dispatch target")
  if (d?.outstanding_wake_id && f.failed(d.outstanding_wake_id)) return say("delivery_failed", "Delivery failed — check its wakes")
  return say("delivering", "Delivering pending work...")
}
