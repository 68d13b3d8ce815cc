// Live copies of tables, by the ecosystem's client. What arrives is applied to a
// map at once and shown at most ten times a second, so that a storm of changes
// costs one drawing for many.
//
// A browser opens six connections to a gateway without TLS. Entities and their
// dispatch state hold one each; what changes seldom is asked for instead.
import { isChangeMessage, isControlMessage, ShapeStream, type Message, type Offset } from "@electric-sql/client"
import { batch, effect, signal } from "@preact/signals"
import { address, identity, Problem, refused, textOf, watchedFetch } from "./api"

const drawEvery = 100
const askEvery = 2000

/** The last request of a table that is asked for. */
let asking: Promise<void> = Promise.resolve()

/** How a table is doing. */
export type State = "loading" | "live" | "broken"

type Row = Record<string, unknown>

export class Table<R> {
  readonly rows = new Map<string, R>()
  /** Rises when rows have changed; read it to be told. */
  readonly version = signal(0)
  readonly state = signal<State>("loading")
  readonly error = signal("")
  private drawing = 0
  /** All rows there were have come. */
  private complete = false
  private stop = new AbortController()
  private seen = new Set<number>()
  private waiters: { txid: number; done: () => void }[] = []

  /** key names the columns that say which row it is. */
  constructor(private table: string, private columns: string[], private key: (row: R) => string, private options: { live: boolean; where?: string }) {}

  /** Starts anew: as somebody else, with nothing of what was there, or after a failure, with what was there until it is known again. */
  start(keep = false) {
    this.end()
    this.stop = new AbortController()
    if (!keep) {
      this.rows.clear()
      this.keys.clear()
    }
    this.stale = new Set(this.keys.keys())
    this.complete = false
    this.state.value = "loading"
    void (this.options.live ? this.follow() : this.poll())
  }

  end() {
    this.stop.abort()
  }

  /** Waits until the first rows are there, or that has failed. */
  settled(): Promise<void> {
    const { signal } = this.stop
    return new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve())
      const stop = effect(() => {
        if (this.state.value === "loading") return
        resolve()
        queueMicrotask(() => stop())
      })
    })
  }

  /** Waits until a transaction's change has been seen; false when it was not in time. */
  async until(txid: number | undefined, timeout = 10_000): Promise<boolean> {
    if (txid === undefined || this.seen.has(txid)) return true
    return new Promise((resolve) => {
      const waiter = { txid, done: () => resolve(true) }
      this.waiters.push(waiter)
      setTimeout(() => {
        this.waiters = this.waiters.filter((w) => w !== waiter)
        resolve(false)
      }, timeout)
    })
  }

  private stream(signal: AbortSignal, subscribe: boolean, offset?: Offset, handle?: string) {
    const { where } = this.options
    return new ShapeStream({
      url: address("/_electric/electric/v1/shape"),
      headers: identity(),
      params: { table: this.table, columns: this.columns, ...(where && { where }) },
      fetchClient: watchedFetch,
      signal, subscribe, offset, handle,
      warnOnHttp: false,
      onError: (e) => this.broke(e, signal),
    })
  }

  private async follow() {
    const { signal } = this.stop
    this.stream(signal, true).subscribe((messages) => { if (!signal.aborted) this.apply(messages) }, (e) => this.broke(e, signal))
  }

  private async poll() {
    const { signal } = this.stop
    let offset: Offset | undefined, handle: string | undefined
    while (!signal.aborted) {
      if (document.visibilityState === "visible") {
        // One after the other, so that few rows are asked for at once.
        const before = asking
        let done = () => {}
        asking = new Promise((resolve) => { done = resolve })
        await before
        // Each asking has an end of its own, so that nothing of it is held once it is over.
        const over = new AbortController()
        const end = () => over.abort()
        signal.addEventListener("abort", end)
        const stream = this.stream(over.signal, false, offset, handle)
        const ok = await new Promise<boolean>((resolve) => {
          stream.subscribe((messages) => {
            if (signal.aborted) return resolve(false)
            this.apply(messages)
            if (messages.some((m) => isControlMessage(m) && m.headers.control === "up-to-date")) resolve(true)
          }, (e) => { this.broke(e, signal); resolve(false) })
          over.signal.addEventListener("abort", () => resolve(false))
          if (signal.aborted) end()
        })
        if (ok) [offset, handle] = [stream.lastOffset, stream.shapeHandle]
        stream.unsubscribeAll()
        signal.removeEventListener("abort", end)
        over.abort()
        done()
      }
      await new Promise((resolve) => setTimeout(resolve, askEvery))
    }
  }

  private broke(e: unknown, signal: AbortSignal) {
    if (signal.aborted) return
    this.state.value = "broken"
    this.error.value = textOf(e)
    const status = (e as { status?: number }).status ?? (e instanceof Problem ? e.status : 0)
    // Without credentials there is nothing to try again until somebody signs in.
    if (status === 401 && !refused.value) refused.value = "Sign in to see this gateway."
    if (status !== 401 && this.options.live) setTimeout(() => !signal.aborted && this.start(status !== 403), 3000)
  }

  /** Where the shape's keys lead: an update carries only what changed. */
  private keys = new Map<string, string>()
  /** Rows from before the last beginning that have not come again; gone once all have. What a person types next to them is not. */
  private stale = new Set<string>()

  private apply(messages: Message<Row>[]) {
    let changed = false
    for (const m of messages) {
      if (isChangeMessage(m)) {
        changed = true
        this.stale.delete(m.key)
        if (m.headers.operation === "delete") {
          this.rows.delete(this.keys.get(m.key) ?? "")
          this.keys.delete(m.key)
        } else {
          const id = this.keys.get(m.key)
          const row = { ...(id !== undefined ? this.rows.get(id) : undefined), ...m.value } as R
          const now = id ?? this.key(row)
          this.keys.set(m.key, now)
          this.rows.set(now, row)
        }
        for (const t of (m.headers.txids as number[] | undefined) ?? []) this.saw(t)
      } else if (m.headers.control === "must-refetch") {
        changed = true
        this.stale = new Set(this.keys.keys())
        this.complete = false
        this.state.value = "loading"
      } else if (m.headers.control === "up-to-date" && this.state.value !== "live") {
        changed = this.complete = true
        for (const key of this.stale) {
          this.rows.delete(this.keys.get(key)!)
          this.keys.delete(key)
        }
        this.stale.clear()
      }
    }
    if (changed && !this.drawing) this.drawing = window.setTimeout(() => this.draw(), drawEvery)
  }

  private draw() {
    this.drawing = 0
    batch(() => {
      this.version.value++
      if (!this.complete) return
      this.state.value = "live"
      this.error.value = ""
    })
  }

  private saw(txid: number) {
    if (this.seen.size > 5000) this.seen.clear()
    this.seen.add(txid)
    if (!this.waiters.length) return
    for (const w of this.waiters) if (w.txid === txid) w.done()
    this.waiters = this.waiters.filter((w) => w.txid !== txid)
  }
}
