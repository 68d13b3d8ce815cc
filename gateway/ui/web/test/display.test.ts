// The words of display.ts against what the SQL view says of the same rows.
import assert from "node:assert/strict"
import test from "node:test"
import { display } from "../src/display"
import type { DiagnosticsRow, DispatchRow, EntityRow, RunnerRow } from "../src/rows"
import golden from "./display.golden.json"

test("the words are the view's, row for row", () => {
  const runners = golden.runners as unknown as RunnerRow[], diagnostics = golden.diagnostics as unknown as DiagnosticsRow[]
  assert.ok(golden.cases.length > 60)
  for (const c of golden.cases) {
    const got = display({
      entity: c.entity as unknown as EntityRow, dispatch: c.dispatch as unknown as DispatchRow, now: golden.now,
      runner: (id) => runners.find((r) => r.id === id), diagnostics: (id) => diagnostics.find((d) => d.runner_id === id),
      failed: () => c.failed,
    })
    assert.deepEqual([c.name, got.code, got.display], [c.name, c.code, c.display])
  }
})

test("what is not synced is asked for", () => {
  const entity = { url: "/t/1", type: "t", status: "idle", dispatch_policy: { targets: [{ type: "runner", runnerId: "somebody's" }] } } as unknown as EntityRow
  const dispatch = { outstanding_wake_id: "w", outstanding_wake_target: { type: "runner", runnerId: "somebody's" } } as unknown as DispatchRow
  const facts = { entity, dispatch, now: 0, runner: () => undefined, diagnostics: () => undefined, failed: () => false }
  assert.equal(display(facts).ask, true)
  assert.equal(display({ ...facts, entity: { ...entity, dispatch_policy: null }, dispatch: undefined }).ask, true)
})
