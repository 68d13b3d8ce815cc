// Follows one entity's main stream, by the ecosystem's client.
import { stream } from "@durable-streams/client"
import { signal } from "@preact/signals"
import { address, identity, seg, textOf, watchedFetch } from "./api"
import { Timeline, type Message } from "./timeline"

export class Tail {
  readonly timeline = new Timeline()
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
    try {
      const res = await stream<Message>({
        url: address(path), headers: identity(), fetch: watchedFetch, signal, offset: "-1", live: "sse", json: true, warnOnHttp: false,
        sseResilience: { logWarnings: false },
      })
      res.subscribeJson((batch) => {
        for (const m of batch.items) this.timeline.fold(m)
        if (batch.upToDate) this.state.value = "live"
        this.draw()
      })
      await res.closed
      if (!signal.aborted) this.state.value = "closed"
    } catch (e) {
      if (signal.aborted) return
      this.state.value = "broken"
      this.error.value = textOf(e)
    }
  }

  private draw() {
    this.drawing ||= window.setTimeout(() => { this.drawing = 0; this.version.value++ }, 50)
  }
}
