// The one line that is said about an entity: the SQL view entity_display in
// TypeScript, from the rows that the Shape endpoint serves. The view's own
// answers for a table of cases are what it is tested against.
import { millis, type DiagnosticsRow, type DispatchRow, type EntityRow, type RunnerRow, type Target } from "./rows"

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
  /** Whether the open wake was given up by its transport. */
  failed: (wakeId: string) => boolean
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

export function display(f: Facts): Display {
  const { entity: e, dispatch: d } = f
  const first = e.dispatch_policy?.targets?.[0]
  const target = d?.outstanding_wake_target ?? first
  const say = (code: string, display: string, more: Partial<Display> = {}): Display => ({ code, display, target, ...more })
  if (fixed[e.status]) return say(e.status, fixed[e.status])
  const runnerId = d?.active_runner_id ?? first?.runnerId
  const runner = runnerId ? f.runner(runnerId) : undefined
  const unknownRunner = !!runnerId && !runner
  if (e.status === "running") return say("running", runner ? `Running on ${runner.label}` : "Running", { ask: unknownRunner })
  const pending = !!d?.outstanding_wake_id || !!d?.pending_since
  // Without a target no row tells that work has come.
  if (!pending) return d?.last_error ? say("failed", "Run failed — check logs", { ask: !first }) : say("waiting_for_input", "Waiting for input", { ask: !first })
  if (unknownRunner) return say("delivering", "Delivering pending work...", { ask: true })
  if (runner) {
    return online(runner, f.diagnostics(runner.id), f.now)
      ? say("runner_syncing", "Runner syncing pending work...")
      : say("waiting_for_runner", "Waiting for runner...")
  }
  if (!first?.type) return say("no_target", "Waiting for a dispatch target")
  if (d?.outstanding_wake_id && f.failed(d.outstanding_wake_id)) return say("delivery_failed", "Delivery failed — check its wakes")
  return say("delivering", "Delivering pending work...")
}
