// @durable-streams/client and @durable-streams/state, as they are, against a
// gateway.
import assert from "node:assert/strict"
import net from "node:net"
import { describe, it } from "node:test"
import { DurableStream, DurableStreamError, IdempotentProducer, stream } from "@durable-streams/client"
import { createStateSchema, MaterializedState } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { as, base, bound, restart, until } from "./rig.mjs"

const kyle = as("user:kyle")
const headers = { "electric-principal": "user:kyle" }
let n = 0
const fresh = (name) => `${base}/v1/stream/${name}-${process.pid}-${n++}`

describe("@durable-streams/client", () => {
  it("creates, appends, reads and resumes", async () => {
    const url = fresh("log")
    const log = await DurableStream.create({ url, contentType: "application/json" })
    await log.append(JSON.stringify({ n: 1 }))
    await Promise.all([log.append(JSON.stringify({ n: 2 })), log.append(JSON.stringify({ n: 3 }))])
    const read = await stream({ url, offset: "-1", live: false })
    assert.deepEqual(await read.json(), [{ n: 1 }, { n: 2 }, { n: 3 }])
    const offset = read.offset
    await log.append(JSON.stringify({ n: 4 }))
    assert.deepEqual(await (await stream({ url, offset, live: false })).json(), [{ n: 4 }])
    assert.equal((await DurableStream.head({ url })).contentType, "application/json")
  })

  it("reads a stream of many pages whole", async () => {
    const url = fresh("long")
    const log = await DurableStream.create({ url, contentType: "application/json" })
    const all = [...Array(40).keys()]
    for (const n of all) await log.append(JSON.stringify({ n, pad: "x".repeat(200_000) }))
    const numbers = (items) => items.map((item) => item.n)
    assert.deepEqual(numbers(await (await stream({ url, offset: "-1" })).json()), all)
    for (const live of ["long-poll", "sse"]) {
      const abort = new AbortController()
      const got = []
      const res = await stream({ url, offset: "-1", live, signal: abort.signal })
      res.subscribeJson((batch) => { got.push(...numbers(batch.items)) })
      await until(`all by ${live}`, () => got.length >= all.length)
      assert.deepEqual(got, all)
      abort.abort()
    }
    // Without a live mode the client reads one answer: as the page on concepts
    // says, whoever wants the rest goes on.
    const items = []
    let answers = 0
    for (let offset = "-1", done = false; !done; answers++) {
      const res = await stream({ url, offset, live: false })
      items.push(...numbers(await res.json()))
      offset = res.offset
      done = res.upToDate
    }
    assert.deepEqual(items, all)
    assert.ok(answers > 1, "the stream fits into one answer: this shows nothing")
  })

  it("misses and doubles nothing when connections break in the middle of an answer", { timeout: bound }, async () => {
    const target = new URL(base)
    let cuts = 0
    let connections = 0
    const proxy = net.createServer((near) => {
      const far = net.connect(Number(target.port), target.hostname)
      // An answer has to come whole, and all that is missed is one: some connections hold as much.
      let left = 3_000 * 4 ** (connections++ % 5)
      const end = () => { near.destroy(); far.destroy() }
      for (const side of [near, far]) side.on("error", end).on("close", end)
      near.on("data", (data) => far.write(data))
      far.on("data", (data) => {
        near.write(data.subarray(0, left))
        left -= data.length
        if (left > 0) return
        cuts++
        near.resetAndDestroy()
        far.destroy()
      })
    })
    await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve))
    try {
      const url = fresh("cut")
      const log = await DurableStream.create({ url, contentType: "application/json" })
      const all = [...Array(300).keys()]
      const writing = (async () => { for (const n of all) await log.append(JSON.stringify({ n, pad: "x".repeat(400) })) })()
      const got = []
      let offset = "-1"
      while (got.length < all.length) {
        const abort = new AbortController()
        try {
          const res = await stream({ url: url.replace(target.host, `127.0.0.1:${proxy.address().port}`), offset, live: "sse", signal: abort.signal })
          res.subscribeJson((batch) => {
            got.push(...batch.items.map((item) => item.n))
            offset = batch.offset
            if (got.length >= all.length) abort.abort()
          })
          await res.closed
        } catch (err) {
          assert.ok(cuts > 0, `an error without a cut: ${err}`)
        }
      }
      await writing
      assert.deepEqual(got, all)
      assert.ok(cuts > 0, "no connection was cut: this shows nothing")
    } finally {
      proxy.close()
    }
  })

  for (const live of ["long-poll", "sse"]) {
    it(`reads live by ${live}, across a restart of the gateway`, async () => {
      const url = fresh("live")
      const log = await DurableStream.create({ url, contentType: "application/json" })
      await log.append(JSON.stringify({ n: 0 }))
      const abort = new AbortController()
      const got = []
      const res = await stream({ url, offset: "-1", live, signal: abort.signal })
      res.subscribeJson((batch) => { got.push(...batch.items.map((item) => item.n)) })
      await until("what was there", () => got.length === 1)
      await log.append(JSON.stringify({ n: 1 }))
      await until("what came", () => got.length === 2)
      await restart()
      await log.append(JSON.stringify({ n: 2 }))
      await until("what came after the restart", () => got.length === 3)
      assert.deepEqual(got, [0, 1, 2])
      abort.abort()
    })
  }

  for (const live of [false, "long-poll", "sse"]) {
    it(`is told where a trimmed stream begins (live: ${live}), and goes on there`, async () => {
      const url = fresh("trimmed")
      const log = await DurableStream.create({ url, contentType: "application/json" })
      await log.append(JSON.stringify({ n: 0 }))
      const old = (await stream({ url, offset: "-1", live: false, headers })).offset
      for (const n of [1, 2]) await log.append(JSON.stringify({ n }))
      const cut = (await DurableStream.head({ url })).offset
      await log.append(JSON.stringify({ n: 3 }))
      const path = new URL(url).pathname.slice("/v1/stream/".length)
      const trimmed = await kyle("POST", `/_electric/retention/streams/${path}`, { before: cut })
      assert.equal(trimmed.earliest_offset, cut)
      const refused = await stream({ url, offset: old, live }).then(() => assert.fail("no refusal"), (err) => err)
      assert.equal(refused.status, 410)
      const earliest = refused.headers?.["stream-earliest-offset"] ?? refused.details?.error?.earliest_offset
      for (const offset of [earliest ?? "-1", "-1"]) {
        const abort = new AbortController()
        const got = []
        const res = await stream({ url, offset, live, signal: abort.signal })
        res.subscribeJson((batch) => { got.push(...batch.items.map((item) => item.n)) })
        await until("what is kept", () => got.length === 1)
        assert.deepEqual(got, [3])
        abort.abort()
      }
      assert.equal(earliest, cut, "the client says where to go on")
    })
  }

  it("writes exactly once", async () => {
    const url = fresh("once")
    const log = await DurableStream.create({ url, contentType: "application/json" })
    const failures = []
    const producer = new IdempotentProducer(log, "writer", { autoClaim: true, onError: (err) => failures.push(err) })
    for (let i = 0; i < 200; i++) producer.append(JSON.stringify({ i }))
    await producer.flush()
    await producer.close()
    assert.deepEqual(failures, [])
    const items = await (await stream({ url, offset: "-1", live: false })).json()
    assert.deepEqual(items.map((item) => item.i), [...Array(200).keys()])
  })

  it("is told what is not there", async () => {
    await assert.rejects(() => stream({ url: fresh("none"), live: false }).then((res) => res.json()), (err) => err.status === 404)
    assert.ok(DurableStreamError)
  })
})

// anything takes every value: what the schema says is not the point here.
const anything = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } }

describe("@durable-streams/state", () => {
  it("materialises an entity's stream", { timeout: bound }, async () => {
    await kyle("POST", "/_electric/entity-types", { name: "bot", description: "A bot." })
    const id = `b${process.pid}`
    await kyle("PUT", `/_electric/entities/bot/${id}`, { args: { size: 1 } })
    const url = `${base}/bot/${id}/main`
    const state = createStateSchema({
      created: { schema: anything, type: "entity_created", primaryKey: "key" },
      inbox: { schema: anything, type: "inbox", primaryKey: "key" },
    })
    const db = createStreamDB({ streamOptions: { url, contentType: "application/json", headers }, live: "sse", state })
    try {
      await db.preload()
      assert.equal(db.collections.created.size, 1)
      const [created] = db.collections.created.toArray
      assert.equal(created.entity_type, "bot")
      assert.deepEqual(created.args, { size: 1 })
      await kyle("POST", `/_electric/entities/bot/${id}/send`, { payload: { text: "hello" } })
      await until("the message", () => db.collections.inbox.size === 1)
      assert.deepEqual(db.collections.inbox.toArray[0].payload, { text: "hello" })
    } finally {
      db.close()
    }
    const plain = new MaterializedState()
    const events = await (await stream({ url, headers, offset: "-1", live: false })).json()
    for (const event of events) {
      assert.match(event.headers.offset, /^\d{16}_\d{16}$/)
      plain.apply(event)
    }
    assert.deepEqual([...plain.getType("inbox").values()].map((m) => m.payload), [{ text: "hello" }])
  })

  it("awaits what it wrote itself", { timeout: bound }, async () => {
    const url = fresh("db")
    const state = createStateSchema({ users: { schema: anything, type: "user", primaryKey: "id" } })
    const db = createStreamDB({
      streamOptions: { url, contentType: "application/json" }, live: "sse", state,
      actions: ({ db, stream }) => ({
        add: {
          onMutate: (user) => { db.collections.users.insert(user) },
          mutationFn: async (user) => {
            const txid = crypto.randomUUID()
            await stream.append(JSON.stringify(state.users.insert({ value: user, headers: { txid } })))
            await db.utils.awaitTxId(txid, bound)
          },
        },
      }),
    })
    await DurableStream.create({ url, contentType: "application/json" })
    await db.preload()
    try {
      await db.actions.add({ id: "1", name: "Kyle" }).isPersisted.promise
      assert.equal(db.collections.users.get("1").name, "Kyle")
    } finally {
      db.close()
    }
  })
})
