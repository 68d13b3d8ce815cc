import assert from "node:assert/strict"
import test from "node:test"
import { millis } from "../src/rows"
import { ago, span, targetName, whenWords } from "../src/words"

test("times are read as Postgres and as the API write them", () => {
  const at = Date.UTC(2026, 10, 29, 21, 0, 0, 500)
  for (const t of ["2026-11-29 21:00:00.5+00", "2026-11-29T21:00:00.5Z", "2026-11-29T21:00:00.500+00:00", at, BigInt(at)]) assert.equal(millis(t), at)
  for (const t of [null, undefined, "", "soon"]) assert.ok(Number.isNaN(millis(t)))
})

test("times are told as people tell them", () => {
  assert.deepEqual([0, 40, 100, 8000, 200_000].map((s) => ago(1, s * 1000 + 1)), ["now", "40 s ago", "1 min ago", "2 h ago", "2 d ago"])
  assert.deepEqual([7, 2500, 45_000, 600_000].map(span), ["7 ms", "2.5 s", "45 s", "10 min"])
  assert.equal(ago(null, 0), "–")
})

test("targets have names", () => {
  assert.equal(targetName({ type: "runner", runnerId: "mac" }, () => "Kyle's MacBook"), "Kyle's MacBook")
  assert.equal(targetName({ type: "webhook", url: "https://example.com/hook" }), "example.com")
  assert.equal(targetName({ type: "webhook", url: "odd" }), "odd")
  assert.equal(targetName(null), "none")
  assert.equal(whenWords({ type: "runner", when: { offline: true, unclaimedAfterMs: 15_000 } }), "it is offline, or nobody takes it in 15 s")
})
