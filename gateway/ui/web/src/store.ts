// What the page knows: the live tables, and what is derived from them.
import { computed, effect, signal } from "@preact/signals"
import { credentials, entityPath, get, reachable, refused, serverNow, textOf } from "./api"
import { display, online, type Display } from "./display"
import { Table } from "./live"
import type { DiagnosticsRow, DispatchRow, EntityRow, FailedWakeRow, MemberRow, PoolRow, RunnerRow } from "./rows"

export const entities = new Table<EntityRow>("entities",
  ["url", "type", "status", "dispatch_policy", "tags", "parent", "created_by", "created_at", "updated_at"], (r) => r.url, { live: true })
export const dispatch = new Table<DispatchRow>("entity_dispatch_state",
  ["entity_url", "pending_reason", "pending_since", "outstanding_wake_id", "outstanding_wake_target", "outstanding_wake_created_at", "active_consumer_id",
    "active_runner_id", "active_epoch", "active_claimed_at", "active_lease_expires_at", "last_released_at", "last_error", "updated_at"], (r) => r.entity_url, { live: true })
export const runners = new Table<RunnerRow>("runners",
  ["id", "owner_principal", "label", "kind", "admin_status", "wake_stream", "created_at", "updated_at"], (r) => r.id, { live: false })
export const diagnostics = new Table<DiagnosticsRow>("runner_runtime_diagnostics",
  ["runner_id", "wake_stream_offset", "last_seen_at", "liveness_lease_expires_at", "diagnostics"], (r) => r.runner_id, { live: false })
export const failedWakes = new Table<FailedWakeRow>("wake_notifications", ["wake_id", "entity_url"], (r) => r.wake_id,
  { live: false, where: "delivery_status = 'failed' AND resolved_at IS NULL" })

export const pools = new Table<PoolRow>("worker_pools", ["id", "name", "admin_status"], (r) => r.id, { live: false })
export const poolMembers = new Table<MemberRow>("worker_pool_members", ["pool_id", "runner_id", "status"], (r) => `${r.pool_id} ${r.runner_id}`, { live: false })

const all = [entities, dispatch, runners, diagnostics, failedWakes, pools, poolMembers]

const membersOf = computed(() => {
  void poolMembers.version.value
  return Map.groupBy(poolMembers.rows.values(), (m) => m.pool_id)
})

/** Whether everything is being kept up to date, and what is wrong if not. */
export const connection = computed(() => {
  if (!reachable.value) return { state: "broken" as const, text: "The gateway cannot be reached. It is tried again." }
  const broken = all.find((t) => t.state.value === "broken")
  if (broken) return { state: "broken" as const, text: broken.error.value }
  return all.some((t) => t.state.value === "loading") ? { state: "loading" as const, text: "" } : { state: "live" as const, text: "" }
})

/** Work that was given up and waits for a person. */
export interface ParkedWork {
  entity_url: string
  type: string
  reason: string
  attempts: number
  parked_at: string
  pending_since?: string
  last_error?: string | null
}

export const parked = signal<ParkedWork[]>([])
export const parkedError = signal("")
const parkedByUrl = computed(() => new Map(parked.value.map((p) => [p.entity_url, p])))

/** No row tells of parking, so it is asked for. */
export function askParked() {
  if (document.visibilityState !== "visible" || refused.value) return
  get<ParkedWork[]>("/_electric/parked", { limit: 1000 }).then((list) => {
    parkedError.value = ""
    if (JSON.stringify(list) !== JSON.stringify(parked.value)) parked.value = list
  }, (e) => { parkedError.value = textOf(e) })
}

/** The time by the gateway's clock; moves every second while the page is seen. */
export const now = signal(serverNow())

let starts = 0

/** Starts the tables, those that are asked for in a queue of their own: all rows at once are more than a small gateway reads at a time. */
async function startAll() {
  const mine = ++starts
  for (const t of all) t.end()
  entities.start()
  await entities.settled()
  if (mine !== starts) return
  for (const t of all) if (t !== entities) t.start()
}

/** Starts following, anew whenever somebody else signs in. */
export function begin() {
  setInterval(() => { if (document.visibilityState === "visible") now.value = serverNow() }, 1000)
  setInterval(askParked, 3000)
  effect(() => {
    void credentials.value
    asked.clear()
    parked.value = []
    setTimeout(askParked, 500)
    void startAll()
  })
  effect(() => { if (refused.value) { starts++; for (const t of all) t.end() } })
}

export interface Shown extends Display {
  entity: EntityRow
  dispatch?: DispatchRow
}

/** Words that only the gateway knows, as it gave them. */
const asked = new Map<string, { at: string; row: string; code: string; display: string }>()
const answers = signal(0)
let asking = 0

/** Which state of its rows a word was given for. */
const rowOf = (s: Shown) => `${s.entity.updated_at} ${s.dispatch?.updated_at}`

function ask(s: Shown) {
  const row = rowOf(s)
  // Something that no row tells may have changed as well.
  const at = `${row} ${Math.floor(Date.now() / 5000)}`
  const known = asked.get(s.entity.url)
  if (known?.at === at || asking > 3) return
  asked.set(s.entity.url, known?.row === row ? { ...known, at } : { at, row, code: s.code, display: s.display })
  asking++
  get<{ code: string; display: string }>(`${entityPath(s.entity.url)}/display`)
    .then((d) => { asked.set(s.entity.url, { at, row, code: d.code, display: d.display }); answers.value++ }, () => asked.delete(s.entity.url))
    .finally(() => asking--)
}

/** After something that may have changed the words of an entity, and none of its rows: work for one without a target. */
export function askAgain(url: string) {
  if (asked.delete(url)) answers.value++
}

/** What is said of one entity now. visible asks the gateway where the page cannot know. */
export function show(e: EntityRow, at: number, visible = false): Shown {
  const d = dispatch.rows.get(e.url)
  const s: Shown = {
    ...display({ entity: e, dispatch: d, runner: (id) => runners.rows.get(id), diagnostics: (id) => diagnostics.rows.get(id), failed: (id) => failedWakes.rows.has(id),
      pool: (id) => pools.rows.get(id), members: (id) => membersOf.value.get(id) ?? [], parked: (url) => parkedByUrl.value.get(url), now: at }),
    entity: e, dispatch: d,
  }
  if (!s.ask) return s
  if (visible) ask(s)
  const known = asked.get(e.url)
  return known?.row === rowOf(s) ? { ...s, code: known.code, display: known.display } : s
}

/** All entities as they are shown; computed at most once for each change. */
export const shown = computed(() => {
  for (const t of all) void t.version.value
  void answers.value
  void parked.value
  void slow.value
  const at = serverNow()
  const list: Shown[] = []
  for (const e of entities.rows.values()) list.push(show(e, at))
  return list
})

/** Liveness ends by the clock, with no row that changes. */
const slow = computed(() => Math.floor(now.value / 2000))

export interface RunnerShown {
  runner: RunnerRow
  diagnostics?: DiagnosticsRow
  online: boolean
  /** Entities that it holds, and whose open wake waits for it. */
  holds: string[]
  waits: string[]
}

export const runnersShown = computed(() => {
  for (const t of all) void t.version.value
  void slow.value
  const at = serverNow()
  const by = new Map<string, RunnerShown>()
  for (const r of runners.rows.values()) {
    const g = diagnostics.rows.get(r.id)
    by.set(r.id, { runner: r, diagnostics: g, online: online(r, g, at), holds: [], waits: [] })
  }
  for (const d of dispatch.rows.values()) {
    if (d.active_runner_id) by.get(d.active_runner_id)?.holds.push(d.entity_url)
    else if (d.outstanding_wake_id && d.outstanding_wake_target?.runnerId) by.get(d.outstanding_wake_target.runnerId)?.waits.push(d.entity_url)
  }
  return [...by.values()].sort((a, b) => Number(b.online) - Number(a.online) || b.holds.length - a.holds.length || a.runner.label.localeCompare(b.runner.label))
})
