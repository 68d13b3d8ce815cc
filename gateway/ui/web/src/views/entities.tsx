// All entities, with what is said about each; filtered, searched, sorted.
import { computed, signal } from "@preact/signals"
import { useEffect, useRef } from "preact/hooks"
import { seg } from "../api"
import { Dot, Empty, Icon, Lease, TargetChip, toneOf, useNarrow, VirtualList } from "../bits"
import { showDialog } from "../dialogs"
import { millis } from "../rows"
import { entities, now, show, shown, type Shown } from "../store"
import { ago, full } from "../words"
import { Spawn } from "./actions"

const number = new Intl.NumberFormat()

const search = signal("")
const only = signal("")
const order = signal<"changed" | "waiting" | "name">("changed")

/** The codes in the order in which a person wants to know of them. */
const groups: [code: string, words: string][] = [
  ["delivery_failed", "Delivery failed"], ["failed", "Run failed"], ["parked", "Parked"], ["waiting_for_runner", "Waiting for runner"], ["waiting_for_pool", "Waiting for a pool"], ["waiting_for_capacity", "Waiting for capacity"], ["no_target", "No target"],
  ["delivering", "Delivering"], ["runner_syncing", "Syncing"], ["running", "Running"], ["moving", "Moving"], ["waiting_for_input", "Waiting for input"], ["paused", "Paused"],
  ["spawning", "Starting"], ["stopping", "Stopping"], ["stopped", "Stopped"], ["killed", "Killed"],
]

const counts = computed(() => {
  const n = new Map<string, number>()
  for (const s of shown.value) n.set(s.code, (n.get(s.code) ?? 0) + 1)
  return n
})

const facets = computed(() => {
  const known = new Set(groups.map(([code]) => code))
  const more = [...counts.value.keys()].filter((c) => !known.has(c)).map((c): [string, string] => [c, c.replaceAll("_", " ")])
  return [...groups, ...more].filter(([code]) => counts.value.has(code) || only.value === code)
})

const list = computed(() => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean)
  const found = shown.value.filter((s) => {
    if (only.value && s.code !== only.value) return false
    if (!words.length) return true
    const e = s.entity
    const text = `${e.url} ${s.display} ${e.created_by} ${Object.entries(e.tags ?? {}).map(([k, v]) => `${k}:${v}`).join(" ")} ${e.dispatch_policy?.targets?.map((t) => t.runnerId ?? t.workerPoolId ?? t.url ?? t.type).join(" ") ?? ""}`.toLowerCase()
    return words.every((w) => text.includes(w))
  })
  const since = (s: Shown) => s.dispatch?.pending_since ?? "~"
  const cmp = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
  if (order.value === "name") return found.sort((a, b) => cmp(a.entity.url, b.entity.url))
  if (order.value === "waiting") return found.sort((a, b) => cmp(since(a), since(b)) || cmp(a.entity.url, b.entity.url))
  // A time is read once: a comparison would read two of them each time.
  const at = new Map(found.map((s) => [s, changed(s)]))
  return found.sort((a, b) => at.get(b)! - at.get(a)! || cmp(a.entity.url, b.entity.url))
})

const changed = (s: Shown) => Math.max(millis(s.entity.updated_at), millis(s.dispatch?.updated_at) || 0)

export const entityLink = (url: string) => `#/entity${url.split("/").map(seg).join("/")}`

function Row({ of }: { of: Shown }) {
  const s = show(of.entity, now.value, true)
  const [, type, ...rest] = s.entity.url.split("/")
  const targets = s.entity.dispatch_policy?.targets ?? []
  return (
    <a class="entity" href={entityLink(s.entity.url)}>
      <span class="state"><Dot code={s.code} /><span class={`words ${toneOf(s.code)}`} title={s.display}>{s.display}</span></span>
      <span class="url" title={s.entity.url}><span class="type">/{type}/</span>{rest.join("/")}</span>
      <span class="target">
        {s.dispatch?.active_consumer_id ? <Lease until={s.dispatch.active_lease_expires_at} /> : s.target ? <TargetChip target={s.target} /> : null}
        {targets.length > 1 && <span class="more" title={`${targets.length} targets`}>+{targets.length - 1}</span>}
      </span>
      <time class="when" title={full(changed(s))}>{ago(changed(s), now.value)}</time>
    </a>
  )
}

export function Entities() {
  const box = useRef<HTMLInputElement>(null)
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.key === "/" && !/INPUT|TEXTAREA|SELECT/.test((e.target as HTMLElement).tagName)) { e.preventDefault(); box.current?.focus() }
    }
    addEventListener("keydown", keys)
    return () => removeEventListener("keydown", keys)
  }, [])
  const narrow = useNarrow()
  const total = shown.value.length
  const items = list.value
  return (
    <section class="page fill" aria-labelledby="title">
      <div class="head">
        <h1 id="title">Entities <span class="count">{number.format(total)}</span></h1>
        <label class="search"><Icon name="search" /><input ref={box} type="search" aria-label="Search entities" placeholder="Search by name, tag, target ( / )" value={search.value}
          onInput={(e) => { search.value = e.currentTarget.value }} /></label>
        <label class="sort"><span class="sr">Sort by</span><select value={order.value} onChange={(e) => { order.value = e.currentTarget.value as typeof order.value }}>
          <option value="changed">Newest change</option><option value="waiting">Longest waiting</option><option value="name">Name</option>
        </select></label>
        <button class="primary" onClick={() => showDialog(<Spawn />)}><Icon name="plus" />Spawn</button>
      </div>
      <div class="facets" role="group" aria-label="Filter by state">
        <button aria-pressed={!only.value} onClick={() => { only.value = "" }}>All <b>{number.format(total)}</b></button>
        {facets.value.map(([code, words]) => (
          <button key={code} data-code={code} aria-pressed={only.value === code} onClick={() => { only.value = only.value === code ? "" : code }}>
            <Dot code={code} />{words} <b>{number.format(counts.value.get(code) ?? 0)}</b>
          </button>
        ))}
      </div>
      {items.length > 0 ? <VirtualList items={items} height={narrow ? 68 : 46} label="Entities" id={(s) => s.entity.url} row={(s) => <Row of={s} />} />
        : entities.state.value === "loading" ? <div class="skeleton" aria-busy="true"><span /><span /><span /><span /></div>
          : total ? <Empty title="Nothing matches."><p><button class="quiet" onClick={() => { search.value = ""; only.value = "" }}>Show all</button></p></Empty>
            : <Empty title="No entities yet."><p>Spawn one here, or with <code>rouse entity spawn --help</code>.</p></Empty>}
    </section>
  )
}
