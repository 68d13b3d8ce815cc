// A stream's rows, folded.
import assert from "node:assert/strict"
import test from "node:test"
import { Timeline, type Message } from "../src/timeline"

const row = (type: string, key: string, value: Record<string, unknown>, operation = "insert"): Message => ({ type, key, value, headers: { operation } })

function fold(...messages: unknown[]) {
  const t = new Timeline()
  for (const m of messages) t.fold(m as Message)
  return t
}

test("deltas make a text, in their order and before its row too", () => {
  const t = fold(row("text_delta", "t1:0", { text_id: "t1", delta: "Six " }), row("text", "t1", { status: "streaming" }), row("text_delta", "t1:1", { delta: "beds" }), row("text", "t1", { status: "completed" }, "update"))
  assert.equal(t.items.length, 1)
  assert.deepEqual([t.items[0].kind, t.items[0].text, t.items[0].status], ["text", "Six beds", "completed"])
  assert.equal(fold(row("text", "t", { text: "whole" })).items[0].text, "whole")
})

test("a tool call is one item from its start to its end", () => {
  const t = fold(row("tool_call", "c", { tool_name: "search", status: "started", args: { q: "beans" } }), row("tool_call", "c", { status: "failed", error: "no net" }, "update"))
  assert.equal(t.items.length, 1)
  assert.deepEqual([t.items[0].title, t.items[0].status], ["search", "failed"])
  assert.match(t.items[0].text, /beans[^]*no net/)
})

test("a message says whom it is from, and one that is taken back is seen to be", () => {
  const t = fold(row("inbox", "m", { from: "/principal/user%3Aada", payload: { text: "hello" }, mode: "queued", status: "pending" }), { type: "inbox", key: "m", headers: { operation: "delete" } })
  assert.deepEqual([t.items[0].who, t.items[0].text, t.items[0].gone, t.has("inbox", "m")], ["user:ada", "hello", true, true])
})

test("whatever else there is stays as it came", () => {
  const odd = [null, 7, "text", [1, 2], {}, { type: 3 }, { type: "state:plan", key: "p", value: { beds: 6 } }, { type: "text", key: "n", value: null }, { headers: { control: "reset" } },
    { type: "text_delta", key: "nokey", value: "x" }, { type: "__proto__", key: "constructor", value: {} }, { type: "state:gone", key: "k", headers: { operation: "delete" } }]
  const t = fold(...odd)
  assert.equal(t.items.filter((i) => i.kind === "raw").length, 9)
  assert.match(t.items.find((i) => i.title === "state:plan")!.text, /"beds": 6/)
})

test("after a reset a key is another row", () => {
  const t = fold(row("run", "r", { status: "started" }), { headers: { control: "reset" } }, row("run", "r", { status: "completed" }))
  assert.deepEqual(t.items.map((i) => i.status), ["started", "completed"])
  assert.equal(new Set(t.items.map((i) => i.id)).size, 2)
})

test("signals, errors, wakes and notes are worded", () => {
  const t = fold(row("signal", "s", { signal: "SIGSTOP", sender: "/principal/user%3Aada", previous_state: "idle", new_state: "paused", status: "handled" }), row("error", "e", { message: "boom" }),
    row("wake", "w", { source: "/task/2", changes: [{ collection: "run", kind: "update", key: "r" }] }), row("entity_created", "entity-created", { args: {} }), row("child_status", "c", { entity_url: "/task/3", status: "done" }))
  assert.deepEqual(t.items.map((i) => [i.kind, i.title, i.text]), [["signal", "SIGSTOP", "idle → paused"], ["error", "Error", "boom"], ["wake", "Woken", "run update r"], ["note", "Created", ""], ["note", "Child", "/task/3 done"]])
})
