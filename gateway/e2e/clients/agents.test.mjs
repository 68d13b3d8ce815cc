// Runners and webhook handlers as the ecosystem's runtime speaks to a server.
import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { createPublicKey, verify } from "node:crypto"
import { createServer } from "node:http"
import { fileURLToPath } from "node:url"
import { it } from "node:test"
import { Shape, ShapeStream } from "@electric-sql/client"
import { Puller, text } from "./puller.mjs"
import { as, base, until } from "./rig.mjs"

const principal = "user:kyle"
const kyle = as(principal)
let n = 0

// laptop registers a type and a runner, and spawns for it.
async function laptop() {
  const id = `laptop-${process.pid}-${n++}`
  await kyle("POST", "/_electric/entity-types", { name: id, description: "x" })
  await kyle("POST", "/_electric/runners", { id, label: id })
  const policy = { targets: [{ type: "runner", runnerId: id }] }
  return {
    id,
    spawn: (name, initialMessage) => kyle("PUT", `/_electric/entities/${id}/${name}`, { dispatch_policy: policy, initialMessage }),
    send: (name, payload) => kyle("POST", `/_electric/entities/${id}/${name}/send`, { payload }),
    texts: async (name) => (await kyle("GET", `/${id}/${name}/main?offset=-1`)).filter((row) => row.type === "text").map((row) => row.key),
  }
}

for (const tokenHeader of ["authorization", "electric-claim-token", "both"]) {
  it(`a runner claims, keeps, writes and gives back, its token in ${tokenHeader}`, async () => {
    const mac = await laptop()
    const payloads = []
    let open
    const gate = new Promise((resolve) => { open = resolve })
    const puller = new Puller({ base, id: mac.id, principal, tokenHeader, work: async ({ trigger, append }) => {
      payloads.push(trigger?.value.payload)
      await gate
      for (let i = 0; i < 20; i++) append(text(`${payloads.length}-${i}`))
    } })
    await puller.start()
    await mac.spawn("a", { n: 1 })
    await until("the first run", () => payloads.length === 1)
    await until("heartbeats of the claim", () => puller.seen.beats >= 3)
    await mac.send("a", { n: 2 }) // comes while the entity is held
    open()
    await until("both are given back", () => puller.seen.done.length === 2)
    assert.deepEqual(payloads, [{ n: 1 }, { n: 2 }])
    assert.deepEqual(puller.seen.done, [{ epoch: 1, next: true }, { epoch: 2, next: false }])
    assert.deepEqual(await mac.texts("a"), [1, 2].flatMap((run) => Array.from({ length: 20 }, (_, i) => `${run}-${i}`)))
    await until("the runner's cursor is known", async () => {
      const runner = await kyle("GET", `/_electric/runners/${mac.id}`)
      return runner.wake_stream_offset === puller.offset && runner.diagnostics.claims_succeeded === 2
    })
    await puller.stop()
    assert.deepEqual(puller.seen.refused, [])
  })
}

it("two processes of one runner share its work: each wake is worked once", async () => {
  const mac = await laptop()
  const pullers = ["a", "b"].map((name) => new Puller({ base, id: mac.id, principal, work: async ({ append }) => append(text(name)) }))
  for (const p of pullers) await p.start()
  for (let i = 0; i < 12; i++) await mac.spawn(i, i)
  await until("all is done", () => pullers.reduce((sum, p) => sum + p.seen.done.length, 0) === 12)
  for (let i = 0; i < 12; i++) assert.equal((await mac.texts(i)).length, 1)
  for (const p of pullers) await p.stop()
  assert.deepEqual(pullers.flatMap((p) => p.seen.refused), [])
  assert.equal(pullers.reduce((sum, p) => sum + p.seen.claimed, 0), 12)
})

it("a runner that is killed mid-work is followed by another, which is told of the same message", async () => {
  const mac = await laptop()
  const dead = spawn(process.execPath, [fileURLToPath(new URL("puller.mjs", import.meta.url)), base, mac.id, principal], { stdio: ["ignore", "pipe", "inherit"] })
  await mac.spawn("a", { n: 1 })
  await new Promise((resolve) => dead.stdout.once("data", resolve))
  dead.kill("SIGKILL")
  const got = []
  const puller = new Puller({ base, id: mac.id, principal, work: async ({ wake, trigger, append }) => {
    got.push([wake.epoch, trigger?.value.payload])
    append(text("whole"))
  } })
  await puller.start()
  await until("it is done", () => puller.seen.done.length === 1)
  assert.deepEqual(got, [[2, { n: 1 }]])
  assert.deepEqual(await mac.texts("a"), ["half-0", "half-1", "whole"])
  assert.deepEqual((await kyle("GET", `/_electric/entities/${mac.id}/a/claims`)).map((c) => c.status), ["released", "expired"])
  await puller.stop()
  assert.deepEqual(puller.seen.refused, []) // the wake of before is skipped, not refused
})

// check is how the runtime verifies a delivery by default.
async function check(header, body) {
  const part = Object.fromEntries(header.split(",").map((p) => [p.slice(0, p.indexOf("=")), p.slice(p.indexOf("=") + 1)]))
  assert.ok(Math.abs(Date.now() / 1000 - Number(part.t)) < 300)
  const { keys } = await (await fetch(`${base}/__ds/jwks.json`)).json()
  for (const key of keys) assert.deepEqual([key.kty, key.crv, key.use ?? "sig", key.alg ?? "EdDSA"], ["OKP", "Ed25519", "sig", "EdDSA"])
  const key = createPublicKey({ key: keys.find((k) => k.kid === part.kid), format: "jwk" })
  assert.ok(verify(null, Buffer.concat([Buffer.from(`${part.t}.`), body]), key, Buffer.from(part.ed25519, "base64url")))
}

it("a webhook handler answers that it works, and calls back with nothing but its token", async () => {
  const type = `hook-${process.pid}`
  const failures = []
  const worker = new Puller({ base, id: "none", principal: "system:dev-local", work: async ({ trigger, append }) => append(text(trigger.value.payload)) })
  const server = createServer(async (req, res) => {
    const chunks = []
    for await (const chunk of req) chunks.push(chunk)
    const body = Buffer.concat(chunks)
    try {
      await check(req.headers["webhook-signature"], body)
    } catch (err) {
      failures.push(err)
      return res.writeHead(401).end()
    }
    const wake = JSON.parse(body)
    if (wake.entity?.type !== type) return res.writeHead(503).end()
    res.writeHead(200, { "content-type": "application/json" }).end(`{"ok":true}`)
    worker.process(wake).catch((err) => failures.push(err))
  })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  const url = `http://127.0.0.1:${server.address().port}/agents`
  await kyle("POST", "/_electric/entity-types", { name: type, description: "x", serve_endpoint: url,
    default_dispatch_policy: { targets: [{ type: "webhook", url, subscription_id: `webhook:${type}` }] } })
  const texts = async (name) => (await kyle("GET", `/${type}/${name}/main?offset=-1`)).filter((row) => row.type === "text").map((row) => row.key)
  for (const name of ["a", "b", "c"]) await kyle("PUT", `/_electric/entities/${type}/${name}`, { initialMessage: `${name}-1` })
  for (const name of ["a", "b", "c"]) await until(`${name} answers`, async () => (await texts(name)).length === 1)
  await kyle("POST", `/_electric/entities/${type}/a/send`, { payload: "a-2" })
  await until("a answers again", async () => (await texts("a")).length === 2)
  assert.deepEqual([await texts("a"), await texts("b"), await texts("c")], [["a-1", "a-2"], ["b-1"], ["c-1"]])
  assert.deepEqual(failures, [])
  server.closeAllConnections()
  server.close()
})

it("a shape that is read again in the same process is read whole again", async () => {
  const mac = await laptop()
  for (const name of ["a", "b", "c"]) {
    await mac.spawn(name)
    const shape = new Shape(new ShapeStream({ url: `${base}/_electric/electric/v1/shape`, params: { table: "entities" }, headers: { "electric-principal": principal }, subscribe: false }))
    const urls = (await shape.rows).map((row) => row.url)
    assert.ok(urls.includes(`/${mac.id}/${name}`), `${urls}`)
  }
})
