// Follows one entity's main stream, by the ecosystem's client.
import { stream } from "@durable-streams/client"
import { signal } from "@preact/signals"
import { address, identity, seg, textOf, watchedFetch } from "./api"
import { Timeline, type Message } from "./timeline"

export class Tail {
  /** Another one once the stream was cut off and has been read anew. */
  timeline = new Timeline()
  readonly version = signal(0)
  readonly state = signal<"loading" | "live" | "closed" | "broken">("loading")
  readonly error = signal("")
  private ended = new AbortController()
  private drawing = 0

  constructor(url: string) {
    void this.follow(`${url.split("/").map(seg).join("/")}/main`)
  }

  end() {
    this.ended.abort()
    clearTimeout(this.drawing)
  }

  /** Waits until a message's row has come; false when it was not in time. */
  async until(txid: string, key: string, timeout = 10_000): Promise<boolean> {
    const end = Date.now() + timeout
    while (!this.timeline.txids.has(txid) && !this.timeline.has("inbox", key)) {
      if (Date.now() > end || this.ended.signal.aborted) return false
      await new Promise((r) => setTimeout(r, 20))
    }
    return true
  }

  private async follow(path: string) {
    const { signal } = this.ended
    while (!signal.aborted) {
      // From the beginning each time, into a timeline of its own: where a cut ran through what came last is not known, and a piece of
      // text must not be taken in twice.
      const timeline = new Timeline()
      try {
        const res = await stream<Message>({
          url: address(path), headers: identity(), fetch: watchedFetch, signal, offset: "-1", live: "sse", json: true, warnOnHttp: false,
          sseResilience: { logWarnings: false },
        })
        res.subscribeJson((batch) => {
          for (const m of batch.items) timeline.fold(m)
          if (batch.upToDate) {
            this.state.value = "live"
            this.error.value = ""
          }
          // What there was stays on the screen until this has caught up with it.
          if (batch.upToDate || !this.timeline.items.length) this.timeline = timeline
          if (this.timeline === timeline) this.draw()
        })
        await res.closed
        if (!signal.aborted) this.state.value = "closed"
        return
      } catch (e) {
        if (signal.aborted) return
        this.state.value = "broken"
        this.error.value = textOf(e)
        const { status } = e as { status?: number }
        // 410: what was to be read next has been trimmed meanwhile. 429: later.
        if (status && status < 500 && ![410, 429].includes(status)) return
        this.error.value = "The stream was cut off. It is tried again."
      }
      await new Promise((resolve) => setTimeout(resolve, 2000))
    }
  }

  private draw() {
    this.drawing ||= window.setTimeout(() => { this.drawing = 0; this.version.value++ }, 50)
  }
}
