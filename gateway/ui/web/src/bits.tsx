// Small pieces that several views draw.
import type { ComponentChildren } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { millis, type Target } from "./rows"
import { pools, runners } from "./store"
import { serverNow } from "./api"
import { span, targetName } from "./words"

const icons = {
  entities: "M4 6h16M4 12h16M4 18h10",
  runners: "M4 5h16v10H4zM2 19h20",
  parked: "M6 4h12v16H6zM10 16V8h3a2.500 2.500 0 0 1 0 5h-3",
  system: "M3 12h4l3-8 4 16 3-8h4",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 20a8 8 0 0 1 16 0",
  out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  pool: "M7 8a3 3 0 1 0 0-.01M17 8a3 3 0 1 0 0-.01M12 17a3 3 0 1 0 0-.01M7 11v2M17 11v2",
  hook: "M5 12h9M11 7l5 5-5 5M19 4v16",
  plug: "M9 3v5M15 3v5M6 8h12v4a6 6 0 0 1-12 0zM12 18v3",
  plus: "M12 5v14M5 12h14",
  send: "M4 12l16-8-6 16-3-7z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12M18 6L6 18",
}
export type IconName = keyof typeof icons

export function Icon({ name }: { name: IconName }) {
  return <svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.800" stroke-linecap="round" stroke-linejoin="round"><path d={icons[name]} /></svg>
}

/** What a state means at a glance; the words always stand beside it. */
export const tones: Record<string, string> = {
  running: "good", waiting_for_runner: "warn", waiting_for_pool: "warn", waiting_for_capacity: "warn", moving: "busy", runner_syncing: "busy", delivering: "busy", delivery_failed: "bad", failed: "bad", no_target: "warn",
  waiting_for_input: "calm", paused: "held", parked: "bad", spawning: "busy", stopping: "held", stopped: "dim", killed: "dim",
}
export const toneOf = (code: string) => tones[code] ?? (code.startsWith("waiting") ? "warn" : "calm")

export function Dot({ code }: { code: string }) {
  return <span class={`dot ${toneOf(code)}`} aria-hidden="true" />
}

export function Badge({ tone, children, title }: { tone?: string; children: ComponentChildren; title?: string }) {
  return <span class={`badge ${tone ?? ""}`} title={title}>{children}</span>
}

const targetIcon = (t: Target): IconName => (t.type === "runner" ? "runners" : t.type === "worker-pool" ? "pool" : t.type === "webhook" ? "hook" : "plug")

export function TargetChip({ target, active }: { target: Target; active?: boolean }) {
  void runners.version.value
  void pools.version.value
  return (
    <span class={`chip ${active ? "on" : ""}`} title={`${target.type}: ${target.runnerId ?? target.workerPoolId ?? target.url ?? ""}`}>
      <Icon name={targetIcon(target)} /><span class="name">{target.workerPoolId ? pools.rows.get(target.workerPoolId)?.name ?? target.workerPoolId : targetName(target, (id) => runners.rows.get(id)?.label)}</span>
    </span>
  )
}

/** What is left of a lease, ten times a second while it is on the screen. */
export function Lease({ until, from }: { until: string | null | undefined; from?: string | null }) {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 200)
    return () => clearInterval(timer)
  }, [])
  const left = millis(until) - serverNow()
  const whole = useRef(0)
  whole.current = Math.max(whole.current, left, from ? Math.min(millis(until) - millis(from), 600_000) : 0)
  if (Number.isNaN(left)) return null
  const part = Math.max(0, Math.min(1, left / (whole.current || 1)))
  return (
    <span class={`lease ${left < 3000 ? "short" : ""}`} title="What is left of the lease">
      <svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><circle cx="10" cy="10" r="8" /><circle class="left" cx="10" cy="10" r="8" pathLength={100} stroke-dasharray={`${part * 100} 100`} transform="rotate(-90 10 10)" /></svg>
      {left > 0 ? `lease ${span(Math.max(left, 0))}` : "lease ended"}
    </span>
  )
}

/** JSON as it is, folded away. */
export function Raw({ value, summary }: { value: unknown; summary?: string }) {
  return <details class="raw"><summary>{summary ?? "Raw"}</summary><pre>{JSON.stringify(value, (_, v) => (typeof v === "bigint" ? Number(v) : v), 2)}</pre></details>
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><img src="icon.svg" width="48" height="48" alt="" /><p><strong>{title}</strong></p>{children}</div>
}

/**
 * A list of rows of one height, of which only those on the screen exist. Arrow
 * keys move from row to row.
 */
export function VirtualList<T>({ items, height, row, label, id }: { items: T[]; height: number; row: (item: T) => ComponentChildren; label: string; id: (item: T) => string }) {
  const box = useRef<HTMLDivElement>(null)
  const [view, setView] = useState({ top: 0, size: 900 })
  useEffect(() => {
    const el = box.current!
    const look = () => setView({ top: el.scrollTop, size: el.clientHeight })
    const observer = new ResizeObserver(look)
    observer.observe(el)
    el.addEventListener("scroll", look, { passive: true })
    return () => { observer.disconnect(); el.removeEventListener("scroll", look) }
  }, [])
  const first = Math.max(0, Math.floor(view.top / height) - 6)
  const last = Math.min(items.length, Math.ceil((view.top + view.size) / height) + 6)
  const keys = (e: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[e.key]
    const at = Number((document.activeElement as HTMLElement | null)?.closest<HTMLElement>("[data-row]")?.dataset.row)
    if (!step || Number.isNaN(at)) return
    e.preventDefault()
    const to = Math.max(0, Math.min(items.length - 1, at + step))
    const el = box.current!
    if (to * height < el.scrollTop) el.scrollTop = to * height
    if ((to + 1) * height > el.scrollTop + el.clientHeight) el.scrollTop = (to + 1) * height - el.clientHeight
    requestAnimationFrame(() => requestAnimationFrame(() => el.querySelector<HTMLElement>(`[data-row="${to}"] :is(a, button)`)?.focus()))
  }
  return (
    <div class="virtual" ref={box} role="list" aria-label={label} onKeyDown={keys}>
      <div class="tall" style={{ height: `${items.length * height}px` }}>
        {items.slice(first, last).map((item, i) => (
          <div key={id(item)} class="slot" role="listitem" aria-setsize={items.length} aria-posinset={first + i + 1} data-row={first + i}
            style={{ transform: `translateY(${(first + i) * height}px)`, height: `${height}px` }}>{row(item)}</div>
        ))}
      </div>
    </div>
  )
}

/** Whether the window is no wider than that; a phone's by default. */
export function useNarrow(pixels = 720): boolean {
  const query = `(max-width: ${pixels}px)`
  const [narrow, set] = useState(matchMedia(query).matches)
  useEffect(() => {
    const m = matchMedia(query), look = () => set(m.matches)
    m.addEventListener("change", look)
    return () => m.removeEventListener("change", look)
  }, [])
  return narrow
}
