// An entity's stream as something to read: State Protocol rows folded into what
// they are about. A row of a type that is not known is kept as it came.

export interface Message {
  type?: string
  key?: string
  value?: Record<string, unknown> | null
  old_value?: unknown
  headers?: { operation?: string; control?: string; txid?: string; offset?: string; timestamp?: string; from?: string } & Record<string, unknown>
}

export interface Item {
  id: string
  kind: "inbox" | "text" | "reasoning" | "tool" | "run" | "step" | "signal" | "error" | "wake" | "note" | "raw"
  at?: string
  /** Who or what it is from. */
  who?: string
  title: string
  text: string
  /** As the row has it: pending, completed, failed… */
  status?: string
  /** Everything the row holds, to be unfolded. */
  raw: unknown
  /** Taken back by a delete. */
  gone?: boolean
  /** Rises with each change, so that an unchanged one need not be drawn again. */
  turn: number
}

const str = (v: unknown) => (typeof v === "string" ? v : v === undefined || v === null ? "" : typeof v === "object" ? JSON.stringify(v) : String(v))

/** A payload as a person reads it. */
export function readable(v: unknown): string {
  if (typeof v === "string") return v
  if (v && typeof v === "object" && !Array.isArray(v)) {
    const o = v as Record<string, unknown>
    for (const k of ["text", "message", "content", "prompt"]) if (typeof o[k] === "string" && Object.keys(o).length === 1) return o[k] as string
  }
  return v === undefined ? "" : JSON.stringify(v, null, 2)
}

/** `/principal/user%3Aada` and `user:ada` are the same person. */
export function person(v: unknown): string {
  const s = str(v)
  const m = /^\/principal\/(.+)$/.exec(s)
  try { return m ? decodeURIComponent(m[1]) : s } catch { return s }
}

const timeOf = (v: Record<string, unknown>, m: Message) => str(v.timestamp ?? v.created_at ?? v.started_at ?? m.headers?.timestamp) || undefined

/** By type; a Map, for a type can have any name. */
const kinds = new Map<string, Item["kind"]>([
  ["inbox", "inbox"], ["text", "text"], ["reasoning", "reasoning"], ["tool_call", "tool"], ["run", "run"], ["step", "step"], ["signal", "signal"], ["error", "error"], ["wake", "wake"],
])

/** The rows of one stream; fold takes them in order. */
export class Timeline {
  readonly items: Item[] = []
  /** Transactions whose rows have come. */
  readonly txids = new Set<string>()
  has(type: string, key: string) { return this.at.has(`${type}/${key}`) }
  private at = new Map<string, Item>()
  private values = new Map<string, Record<string, unknown>>()
  private deltas = new Map<string, string>()
  private odd = 0

  fold(m: Message) {
    if (m === null || typeof m !== "object" || Array.isArray(m)) return this.raw("value", m)
    if (m.headers?.txid !== undefined) this.txids.add(String(m.headers.txid))
    if (m.headers?.control) {
      if (m.headers.control === "reset") { this.at.clear(); this.values.clear(); this.deltas.clear() }
      return
    }
    const { type, key } = m
    if (typeof type !== "string" || typeof key !== "string") return this.raw("value", m)
    if (type === "text_delta" || type === "reasoning_delta") return this.delta(type, key, m)
    if (type === "replay_watermark") return
    const id = `${type}/${key}`
    if (m.headers?.operation === "delete") {
      const item = this.at.get(id)
      if (item) { item.gone = true; item.turn++ } else this.raw(type, m)
      return
    }
    const value = { ...this.values.get(id), ...(m.value && typeof m.value === "object" ? m.value : { value: m.value }) }
    this.values.set(id, value)
    const item = this.at.get(id) ?? this.add(id, kinds.get(type) ?? (Object.hasOwn(notes, type) ? "note" : "raw"))
    item.turn++
    item.raw = value
    item.at ??= timeOf(value, m)
    item.status = str(value.status ?? value.mode) || undefined
    this.word(item, type, key, value)
  }

  private word(item: Item, type: string, key: string, v: Record<string, unknown>) {
    switch (item.kind) {
      case "inbox":
        item.who = person(v.from_agent ?? v.from_principal ?? v.from)
        item.title = str(v.message_type)
        item.text = readable(v.payload)
        if (v.mode && v.mode !== "immediate") item.status = `${str(v.mode)}, ${str(v.status)}`
        break
      case "text":
      case "reasoning":
        item.text = str(v.text ?? v.content) || this.deltas.get(`${type}/${key}`) || ""
        break
      case "tool":
        item.title = str(v.tool_name ?? v.name) || "tool"
        item.text = [v.args !== undefined && readable(v.args), v.result !== undefined && `→ ${readable(v.result)}`, v.error !== undefined && `✗ ${readable(v.error)}`].filter(Boolean).join("\n")
        break
      case "run":
        item.title = "Run"
        item.text = str(v.finish_reason ?? v.error)
        break
      case "step":
        item.title = `Step ${str(v.step_number ?? v.n ?? "")}`.trim()
        item.text = str(v.finish_reason ?? v.title)
        break
      case "signal":
        item.title = str(v.signal)
        item.who = person(v.sender)
        item.text = [v.previous_state && `${str(v.previous_state)} → ${str(v.new_state)}`, str(v.reason)].filter(Boolean).join(", ")
        break
      case "error":
        item.title = str(v.error_code ?? v.code) || "Error"
        item.text = str(v.message ?? v.error) || readable(v)
        break
      case "wake":
        item.title = v.timeout ? "Woken by a timeout" : "Woken"
        item.who = person(v.source)
        item.text = Array.isArray(v.changes) ? v.changes.map((c) => [c?.collection, c?.kind, c?.key].map(str).filter(Boolean).join(" ")).join("\n") : ""
        break
      case "note": {
        const [title, text] = notes[type](v, key)
        item.title = title
        item.text = text
        break
      }
      default:
        item.title = type
        item.text = JSON.stringify(v, null, 2)
    }
  }

  private delta(type: string, key: string, m: Message) {
    const v = (m.value && typeof m.value === "object" ? m.value : { delta: m.value }) as Record<string, unknown>
    const of = type === "text_delta" ? "text" : "reasoning"
    const id = `${of}/${str(v.text_id ?? v.reasoning_id) || key.replace(/:[^:]*$/, "")}`
    const text = (this.deltas.get(id) ?? "") + str(v.delta ?? v.text ?? v.content)
    this.deltas.set(id, text)
    const item = this.at.get(id) ?? this.add(id, of)
    item.at ??= timeOf(v, m)
    item.text = text
    item.raw = { ...(this.values.get(id) ?? {}), text }
    item.turn++
  }

  private raw(title: string, m: unknown) {
    const item = this.add(`raw/${this.odd++}`, "raw")
    item.title = title
    item.text = JSON.stringify(m, null, 2) ?? "null"
    item.raw = m
  }

  private add(id: string, kind: Item["kind"]): Item {
    // A key that comes again after a reset is another row.
    const item: Item = { id: `${this.items.length}/${id}`, kind, title: "", text: "", raw: null, turn: 0 }
    this.items.push(item)
    this.at.set(id, item)
    return item
  }
}

/** Rows that are a line of their own. */
const notes: Record<string, (v: Record<string, unknown>, key: string) => [string, string]> = {
  entity_created: (v) => ["Created", v.args && Object.keys(v.args as object).length ? readable(v.args) : ""],
  entity_stopped: (v) => ["Stopped", str(v.reason)],
  child_status: (v) => ["Child", [person(v.entity_url ?? v.url), str(v.status)].filter(Boolean).join(" ")],
  tags: (v, key) => ["Tag", `${str(v.key) || key}: ${str(v.value)}`],
  manifest: (v, key) => ["Manifest", [str(v.kind), str(v.id) || key, str(v.status)].filter(Boolean).join(" ")],
  slash_command: (v, key) => ["Command", `/${str(v.name) || key}`],
  context_inserted: (v, key) => ["Context added", str(v.title ?? v.name) || key],
  context_removed: (v, key) => ["Context removed", str(v.title ?? v.name) || key],
}
