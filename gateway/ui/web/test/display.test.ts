// The words of display.ts against what the SQL view says of the same rows.
import assert from "node:assert/strict"
import test from "node:test"
import { display } from "../src/display"
import type { DiagnosticsRow, DispatchRow, EntityRow, MemberRow, PoolRow, RunnerRow } from "../src/rows"
import golden from "./display.golden.json"

const runners = golden.runners as unknown as RunnerRow[], diagnostics = golden.diagnostics as unknown as DiagnosticsRow[]
const pools = golden.pools as unknown as PoolRow[], members = golden.members as unknown as MemberRow[]
const known = {
  now: golden.now, runner: (id: string) => runners.find((r) => r.id === id), diagnostics: (id: string) => diagnostics.find((d) => d.runner_id === id),
  pool: (id: string) => pools.find((p) => p.id === id), members: (id: string) => members.filter((m) => m.pool_id === id), failed: () => false, parked: () => undefined,
}

test("the words are the view's, row for row", () => {
  assert.ok(golden.cases.length > 60)
  for (const c of golden.cases) {
    const parked = (c as { parked?: string }).parked
    const got = display({
      ...known, entity: c.entity as unknown as EntityRow, dispatch: c.dispatch as unknown as DispatchRow,
      failed: () => c.failed, parked: () => (parked ? { reason: parked, attempts: c.attempts } : undefined),
    })
    // What only the gateway knows is asked of it.
    if (c.unsynced) assert.deepEqual([c.name, got.ask], [c.name, true])
    else assert.deepEqual([c.name, got.code, got.display], [c.name, c.code, c.display])
  }
})

test("what is not synced is asked for", () => {
  const entity = { url: "/t/1", type: "t", status: "idle", dispatch_policy: { targets: [{ type: "runner", runnerId: "somebody's" }] } } as unknown as EntityRow
  const dispatch = { outstanding_wake_id: "w", outstanding_wake_target: { type: "runner", runnerId: "somebody's" } } as unknown as DispatchRow
  const facts = { ...known, entity, dispatch }
  assert.equal(display(facts).ask, true)
  assert.equal(display({ ...facts, entity: { ...entity, dispatch_policy: null }, dispatch: undefined }).ask, true)
})
