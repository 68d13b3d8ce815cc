// @electric-sql/client, as it is, against a gateway.
import assert from "node:assert/strict"
import { after, before, describe, it } from "node:test"
import { isChangeMessage, isControlMessage, Shape, ShapeStream } from "@electric-sql/client"
import { as, base, restart, until } from "./rig.mjs"

const url = `${base}/_electric/electric/v1/shape`
const kyle = as("user:kyle")
const mallory = as("user:mallory")
const streams = []

// open follows a shape as a principal and keeps every message it gets.
function open(params, { principal = "user:kyle", ...options } = {}) {
  const abort = new AbortController()
  const stream = new ShapeStream({
    url, params, headers: { "electric-principal": principal }, signal: abort.signal,
    onError: (err) => { if (!abort.signal.aborted) errors.push(err) }, ...options,
  })
  const errors = []
  const messages = []
  const unsubscribe = stream.subscribe((batch) => messages.push(...batch), (err) => { if (!abort.signal.aborted) errors.push(err) })
  const opened = {
    stream, messages, errors, shape: new Shape(stream),
    close: () => { unsubscribe(); abort.abort() },
    changes: () => messages.filter(isChangeMessage),
    // awaitTxid waits until a change carries the transaction, as UIs do.
    awaitTxid: (txid) => until(`txid ${txid}`, () => {
      assert.deepEqual(errors, [])
      return opened.changes().some((m) => m.headers.txids?.includes(txid))
    }),
  }
  streams.push(opened)
  return opened
}

const urls = (rows) => rows.map((r) => r.url).sort()
let n = 0
const fresh = () => `e${process.pid}-${n++}`

describe("@electric-sql/client", () => {
  before(async () => {
    await kyle("POST", "/_electric/entity-types", { name: "chat", description: "A chat." })
    await kyle("POST", "/_electric/entity-types", { name: "task", description: "A task." })
  })
  after(() => streams.forEach((s) => s.close()))

  it("reads a snapshot once", async () => {
    const id = fresh()
    await kyle("PUT", `/_electric/entities/chat/${id}`, { tags: { room: "1" } })
    const { shape, stream } = open({ table: "entities" }, { subscribe: false })
    const rows = await shape.rows
    const row = rows.find((r) => r.url === `/chat/${id}`)
    assert.deepEqual(row.tags, { room: "1" })
    assert.equal(row.status, "idle")
    assert.equal(row.type_revision, 1)
    assert.equal(Number(row.created_at), (await kyle("GET", `/_electric/entities/chat/${id}`)).created_at)
    assert.ok(stream.isUpToDate)
    const types = await open({ table: "entity_types" }, { subscribe: false }).shape.rows
    assert.match(types[0].created_at, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00$/)
    assert.deepEqual(types.map((t) => t.name).filter((t) => t === "chat" || t === "task").sort(), ["chat", "task"])
  })

  for (const liveSse of [false, true]) {
    it(`follows changes and awaits their transactions, ${liveSse ? "by SSE" : "by long-poll"}`, async () => {
      const { shape, changes, awaitTxid, errors } = open({ table: "entities", where: "type = $1", params: { 1: "task" } }, { liveSse })
      await shape.rows
      const id = fresh()
      const spawned = await kyle("PUT", `/_electric/entities/task/${id}`, {})
      assert.equal(typeof spawned.txid, "number")
      await awaitTxid(spawned.txid)
      const key = changes().find((m) => m.value.url === `/task/${id}`).key
      assert.equal(shape.currentValue.get(key).status, "idle")
      await awaitTxid((await kyle("POST", `/_electric/entities/task/${id}/tags/a`, { value: "b" })).txid)
      await until("the tag", () => shape.currentValue.get(key)?.tags.a === "b")
      await awaitTxid((await kyle("DELETE", `/_electric/entities/task/${id}`)).txid)
      await until("the kill", () => shape.currentValue.get(key)?.status === "killed")
      // Of another type: not in this shape.
      const other = await kyle("PUT", `/_electric/entities/chat/${fresh()}`, {})
      await awaitTxid((await kyle("PUT", `/_electric/entities/task/${fresh()}`, {})).txid)
      assert.ok(!changes().some((m) => m.headers.txids?.includes(other.txid)))
      assert.deepEqual(errors, [])
    })
  }

  it("takes a row back that no longer matches, and brings it when it does again", async () => {
    const id = fresh()
    const { shape, awaitTxid } = open({ table: "entities", where: "status IN ('idle', 'paused') AND url = $1", params: { 1: `/chat/${id}` }, columns: ["url", "status", "created_by"] })
    await shape.rows
    await awaitTxid((await kyle("PUT", `/_electric/entities/chat/${id}`, {})).txid)
    await until("the row", () => shape.currentRows.length === 1)
    assert.deepEqual(shape.currentRows[0], { url: `/chat/${id}`, status: "idle", created_by: "/principal/user%3Akyle" })
    await kyle("DELETE", `/_electric/entities/chat/${id}`)
    await until("it is gone", () => shape.currentRows.length === 0)
  })

  it("gets whole rows and old values of what was registered", async () => {
    const name = `kind-${process.pid}`
    await kyle("POST", "/_electric/entity-types", { name, description: "one" })
    const { shape, changes } = open({ table: "entity_types", replica: "full", where: `name = '${name}'` })
    await shape.rows
    await kyle("POST", "/_electric/entity-types", { name, description: "two" })
    await until("the second registration", () => shape.currentRows[0]?.description === "two")
    const update = changes().find((m) => m.headers.operation === "update")
    assert.equal(update.value.name, name)
    assert.equal(update.value.revision, 2)
    assert.equal(update.old_value.description, "one")
    assert.equal(update.old_value.name, undefined)
    await kyle("DELETE", `/_electric/entity-types/${name}`)
    await until("it is gone", () => shape.currentRows.length === 0)
    assert.equal(changes().at(-1).value.description, "two")
  })

  it("shows nobody what is not theirs", async () => {
    const id = fresh()
    const hers = open({ table: "entities" }, { principal: "user:mallory" })
    await hers.shape.rows
    const mine = await kyle("PUT", `/_electric/entities/chat/${id}`, {})
    const own = await mallory("PUT", `/_electric/entities/chat/${fresh()}`, {})
    await hers.awaitTxid(own.txid)
    assert.ok(hers.shape.currentRows.every((r) => r.created_by === "/principal/user%3Amallory"), JSON.stringify(urls(hers.shape.currentRows)))
    assert.ok(!hers.changes().some((m) => m.headers.txids?.includes(mine.txid)))
    // A grant opens it, without a request of hers; taking it back closes it.
    const grant = await kyle("POST", `/_electric/entities/chat/${id}/grants`, { subject_kind: "principal", subject_value: "/principal/user%3Amallory", permission: "read" })
    await until("the grant", () => urls(hers.shape.currentRows).includes(`/chat/${id}`))
    await kyle("DELETE", `/_electric/entities/chat/${id}/grants/${grant.id}`)
    await until("the end of the grant", () => !urls(hers.shape.currentRows).includes(`/chat/${id}`))
    assert.deepEqual(hers.errors, [])
  })

  it("starts at the present, and reads parts of the past when it is asked to", async () => {
    const room = `r${fresh()}`
    for (const i of [1, 2, 3]) await kyle("PUT", `/_electric/entities/chat/${room}-${i}`, {})
    for (const method of ["GET", "POST"]) {
      const { stream, shape, changes, awaitTxid } = open({ table: "entities" }, { log: "changes_only", offset: "now" })
      await until("it is up to date", () => stream.isUpToDate)
      assert.equal(changes().length, 0)
      const { data, metadata } = await stream.requestSnapshot({ method, where: "url LIKE $1", params: { 1: `/chat/${room}-%` }, orderBy: "url DESC", limit: 2 })
      assert.deepEqual(data.map((m) => m.value.url), [`/chat/${room}-3`, `/chat/${room}-2`])
      assert.ok(BigInt(metadata.xmax) >= BigInt(metadata.xmin))
      await awaitTxid((await kyle("POST", `/_electric/entities/chat/${room}-3/tags/seen`, { value: method })).txid)
      await until("the tag", () => shape.currentRows.find((r) => r.url === `/chat/${room}-3`)?.tags.seen === method)
    }
  })

  it("tells clauses and tables that are not allowed", async () => {
    for (const [params, status, code] of [
      [{ table: "entities", where: "1 = 1) OR (1 = 1" }, 400, "INVALID_WHERE"],
      [{ table: "streams" }, 403, "TABLE_NOT_ALLOWED"],
    ]) {
      const { errors, close } = open(params)
      await until("an error", () => errors.length > 0)
      assert.equal(errors[0].status, status)
      assert.equal(JSON.parse(errors[0].text).error.code, code)
      close()
    }
  })

  it("fetches anew after the gateway has restarted, and then is right", async () => {
    const id = fresh()
    const { shape, messages, awaitTxid, errors } = open({ table: "entities" })
    await shape.rows
    await awaitTxid((await kyle("PUT", `/_electric/entities/chat/${id}`, {})).txid)
    await restart()
    await kyle("DELETE", `/_electric/entities/chat/${id}`)
    await until("must-refetch", () => messages.some((m) => isControlMessage(m) && m.headers.control === "must-refetch"))
    await until("the kill", () => shape.currentRows.find((r) => r.url === `/chat/${id}`)?.status === "killed")
    await awaitTxid((await kyle("PUT", `/_electric/entities/chat/${fresh()}`, {})).txid)
    assert.deepEqual(errors, [])
  })
})
