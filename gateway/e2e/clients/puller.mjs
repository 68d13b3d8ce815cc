// A runner as the ecosystem's runtime is one on the wire: it tails its wake
// stream, posts each entry to /claim, claims, keeps and gives back by the
// callback, and writes as an idempotent producer under the claim's epoch.
// Run as a program it takes one wake, writes half an answer and hangs.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const json = { "content-type": "application/json" }

export class Puller {
  // work(claim) does what a wake is about; claim.append writes a row.
  // tokenHeader is where the claim's token goes: authorization,
  // electric-claim-token or both.
  constructor({ base, id, principal, work, tokenHeader = "authorization", beatMs = 100, offset = "-1" }) {
    Object.assign(this, { base, id, work, tokenHeader, beatMs, offset })
    this.headers = { "electric-principal": principal }
    this.abort = new AbortController()
    this.busy = new Set() // streams that a claim is at work on
    this.later = new Map() // wakes of those
    this.running = new Set()
    this.seen = { claimed: 0, skipped: 0, beats: 0, done: [], refused: [] }
  }

  async start() {
    const { signal } = this.abort
    const tail = await stream({ url: `${this.base}/runners/${this.id}/wake`, headers: this.headers, offset: this.offset, live: true, signal })
    tail.subscribeJson((batch) => {
      for (const entry of batch.items) if (entry.type === "wake") this.take(entry)
      this.offset = batch.offset
    })
    this.beat()
    this.beats = setInterval(() => this.beat(), 3 * this.beatMs)
  }

  // beat says that the runner lives and how far it has read.
  async beat() {
    const res = await fetch(`${this.base}/_electric/runners/${this.id}/heartbeat`, {
      method: "POST", headers: { ...this.headers, ...json },
      body: JSON.stringify({ lease_ms: 9 * this.beatMs, wake_stream_offset: this.offset, diagnostics: { claims_succeeded: this.seen.claimed, last_error: null } }),
    })
    if (!res.ok) this.seen.refused.push(`heartbeat ${res.status} ${await res.text()}`)
  }

  take(entry) {
    const path = entry.stream.startsWith("/") ? entry.stream : `/${entry.stream}`
    if (this.busy.has(path)) return void this.later.set(path, entry)
    this.busy.add(path)
    const run = this.claim(entry).catch((err) => { this.seen.refused.push(String(err.message)) }).finally(() => {
      this.running.delete(run)
      this.busy.delete(path)
      const next = this.later.get(path)
      this.later.delete(path)
      if (next && !this.abort.signal.aborted) this.take(next)
    })
    this.running.add(run)
  }

  async claim(entry) {
    const res = await fetch(`${this.base}/_electric/runners/${this.id}/claim`, { method: "POST", headers: { ...this.headers, ...json }, body: JSON.stringify(entry) })
    const text = await res.text()
    const skip = res.status === 204 || (res.status === 409 && /ALREADY_CLAIMED|NO_PENDING_WORK/.test(text))
    if (!skip && !res.ok) throw new Error(`claim ${res.status} ${text}`)
    const wake = skip ? {} : JSON.parse(text)
    if (skip || wake.done) return void this.seen.skipped++
    this.seen.claimed++
    await this.process(wake)
  }

  // process works a notification, however it came.
  async process(wake) {
    let token = wake.claimToken
    const under = (t) => {
      const h = { "electric-runner-id": this.id, ...this.headers }
      if (this.tokenHeader !== "electric-claim-token") h.authorization = `Bearer ${t}`
      if (this.tokenHeader !== "authorization") h["electric-claim-token"] = t
      return h
    }
    const call = async (body) => {
      const res = await fetch(wake.callback, { method: "POST", headers: { ...under(token), ...json }, body: JSON.stringify(body) })
      const answer = await res.json()
      if (!res.ok || answer.ok !== true) throw new Error(`callback ${res.status} ${JSON.stringify(answer)}`)
      token = answer.token ?? answer.claimToken ?? token
      return answer
    }
    const url = this.base + wake.streamPath
    const read = async (offset) => {
      const res = await stream({ url, headers: this.headers, offset, live: false })
      return { items: await res.json(), offset: res.offset }
    }
    const [{ writeToken }, { items, offset }] = await Promise.all([call({ epoch: wake.epoch, wakeId: wake.wakeId }), read("-1")])
    // What woke it is the newest message from the notification's offset on.
    const from = wake.streams.find((s) => s.path === wake.streamPath).offset
    const trigger = items.filter((row) => row.type === "inbox" && row.headers.offset >= from).at(-1)
    const failures = []
    const producer = new IdempotentProducer(new DurableStream({ url, headers: this.headers, contentType: "application/json" }), `entity-${wake.entity.url}`, {
      epoch: wake.epoch, autoClaim: true, onError: (err) => failures.push(err),
      fetch: (input, init) => fetch(input, { ...init, headers: { ...Object.fromEntries(new Headers(init?.headers)), ...under(writeToken) } }),
    })
    const keep = setInterval(() => call({ epoch: wake.epoch }).then(() => this.seen.beats++, (err) => failures.push(err)), this.beatMs)
    try {
      await this.work({ wake, items, trigger, append: (row) => producer.append(JSON.stringify(row)), flush: () => producer.flush() })
      await producer.flush()
      if (failures.length) throw failures[0]
      const answer = await call({ epoch: wake.epoch, acks: [{ path: wake.streamPath, offset }], done: true })
      this.seen.done.push({ epoch: wake.epoch, next: answer.next_wake })
    } finally {
      clearInterval(keep)
      await producer.detach?.()
    }
  }

  async stop() {
    this.abort.abort()
    clearInterval(this.beats)
    await Promise.allSettled([...this.running])
  }
}

export const text = (key) => ({ type: "text", key, value: { text: key }, headers: { operation: "insert" } })

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [, , base, id, principal] = process.argv
  const puller = new Puller({ base, id, principal, work: async ({ append, flush }) => {
    for (const key of ["half-0", "half-1"]) append(text(key))
    await flush()
    console.log("working")
    await new Promise(() => {})
  } })
  await puller.start()
}
