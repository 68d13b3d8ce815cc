// How the gateway itself is doing, from its readiness, its plugins and its figures.
import { useEffect, useState } from "preact/hooks"
import { identity, textOf, watchedFetch } from "../api"
import { Badge, Raw } from "../bits"
import { connection, dispatch, entities, now, runners } from "../store"
import { clock, span } from "../words"
import { useAsked } from "./runners"

interface Plugin { name: string; kind: string; builtin: boolean; in_process: boolean; version: string; state: string; code?: string; detail?: string; starts: number; failures: number; pid?: number; next_start?: string }
interface Reason { check: string; code: string; detail?: string }

interface Sample { labels: Record<string, string>; value: number }

/** Reads the text form of the metrics. */
export function parseMetrics(text: string): Map<string, Sample[]> {
  const out = new Map<string, Sample[]>()
  for (const line of text.split("\n")) {
    const m = /^([a-z_0-9]+)(?:\{(.*)\})? ([^ ]+)$/.exec(line)
    if (!m) continue
    const labels: Record<string, string> = {}
    for (const l of (m[2] ?? "").matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)) labels[l[1]] = l[2]
    const list = out.get(m[1]) ?? []
    list.push({ labels, value: Number(m[3]) })
    out.set(m[1], list)
  }
  return out
}

function useFigures() {
  const [state, set] = useState<{ figures: Map<string, Sample[]>; reasons: Reason[]; ready: boolean; error: string; at: number; before?: Map<string, Sample[]>; gap: number }>(
    { figures: new Map(), reasons: [], ready: true, error: "", at: 0, gap: 0 })
  useEffect(() => {
    let here = true
    const root = location.pathname.replace(/\/_electric\/ui\/.*$/, "")
    const ask = async () => {
      try {
        const [metrics, ready] = await Promise.all([watchedFetch(`${root}/metrics`, { headers: identity() }), watchedFetch(`${root}/readyz`, { headers: identity() })])
        const figures = metrics.ok ? parseMetrics(await metrics.text()) : new Map<string, Sample[]>()
        const said = await ready.json().catch(() => ({}))
        if (here) set((s) => ({ figures, before: s.at ? s.figures : undefined, gap: (Date.now() - s.at) / 1000, at: Date.now(), ready: ready.ok, reasons: said.degraded ?? said.error?.reasons ?? said.error?.details?.reasons ?? said.reasons ?? [], error: "" }))
      } catch (e) {
        if (here) set((s) => ({ ...s, error: textOf(e) }))
      }
    }
    void ask()
    const timer = setInterval(() => document.visibilityState === "visible" && void ask(), 3000)
    return () => { here = false; clearInterval(timer) }
  }, [])
  return state
}

const sum = (m: Map<string, Sample[]> | undefined, name: string, where: Record<string, string> = {}) =>
  m?.get(name)?.filter((s) => Object.entries(where).every(([k, v]) => s.labels[k] === v)).reduce((n, s) => n + s.value, 0)

function Figure({ title, value, note }: { title: string; value: string; note?: string }) {
  return <div class="figure"><dt>{title}</dt><dd>{value}</dd>{note && <p class="muted">{note}</p>}</div>
}

const number = new Intl.NumberFormat()

/** What the log feeds say, by the names that the metrics give them. */
const feedNames = /^rouse_(feed|slot|shape)_/

/** What a person asks of the feeds first. */
function health(m: Map<string, Sample[]>): [what: string, how: string, tone?: string][] {
  const one = (name: string) => sum(m, name)
  const out: [string, string, string?][] = []
  const up = one("rouse_feed_up")
  if (up !== undefined) out.push(["Changes", up ? (one("rouse_feed_holder") ? "read by this gateway, which also routes" : "read by this gateway") : "not read: everything goes on by scans, later", up ? "" : "bad"])
  const lag = one("rouse_feed_lag_bytes")
  if (lag !== undefined) out.push(["Behind the log", bytes(lag), lag > 16 << 20 ? "warn" : ""])
  const kept = one("rouse_feed_router_slot_retained_bytes")
  if (kept !== undefined) out.push(["Log kept by the slot", bytes(kept), kept > 2 ** 30 ? "warn" : ""])
  const status = m.get("rouse_feed_router_slot_wal_status")?.find((s) => s.value === 1)
  if (status) out.push(["Slot", Object.values(status.labels)[0] ?? "", ["lost", "unreserved", "absent"].includes(Object.values(status.labels)[0] ?? "") ? "bad" : ""])
  const backlog = one("rouse_feed_router_backlog")
  if (backlog !== undefined) out.push(["To be routed", number.format(backlog)])
  const shapes = one("rouse_shape_up")
  if (shapes !== undefined) out.push(["Live rows", `${shapes ? "followed" : "not followed now"}, ${number.format(one("rouse_shape_requests") ?? 0)} readers, ${bytes(one("rouse_shape_ring_bytes") ?? 0)} kept`])
  return out
}

const stateTone: Record<string, string> = { up: "good", starting: "busy", waiting: "warn", circuit_open: "bad", stopped: "bad" }

export function System() {
  const f = useFigures()
  const plugins = useAsked<Plugin[]>("/_electric/plugins", [], 5000)
  const rate = (name: string, where?: Record<string, string>) => {
    const a = sum(f.figures, name, where) ?? 0, b = f.before?.size ? sum(f.before, name, where) ?? 0 : undefined
    return !f.figures.size ? "–" : b === undefined || !f.gap ? number.format(a) : `${Math.max(0, (a - b) / f.gap).toFixed(1)}/s`
  }
  // A figure that is not there has never counted anything.
  const total = (name: string, where?: Record<string, string>) => f.figures.size ? number.format(sum(f.figures, name, where) ?? 0) : "–"
  const feeds = [...f.figures].filter(([name]) => feedNames.test(name) && !/_bucket$|_created$/.test(name))
  const release = f.figures.get("rouse_build_info")?.[0]?.labels
  const heap = (performance as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize
  return (
    <section class="page" aria-labelledby="title">
      <div class="head"><h1 id="title">System</h1><p class="muted">{release ? `Rouse ${release.version ?? release.release ?? ""}` : ""}</p></div>
      {f.error && <p class="error" role="alert">{f.error}</p>}
      <div class={`card banner ${!f.ready ? "bad" : f.reasons.length ? "warn" : "good"}`} role="status">
        <b>{!f.ready ? "Not ready" : f.reasons.length ? "Ready, with something amiss" : "Everything is well"}</b>
        {f.reasons.map((r) => <p key={r.check}><code>{r.check}</code> {r.code}{r.detail && `: ${r.detail}`}</p>)}
      </div>
      <dl class="figures">
        <Figure title="Requests" value={rate("rouse_http_requests_total")} note={`${total("rouse_http_requests_in_flight")} under way`} />
        <Figure title="Wakes routed" value={rate("rouse_dispatch_routed_total")} note={`${total("rouse_dispatch_routed_total")} in all`} />
        <Figure title="Leases expired" value={total("rouse_claims_expired_total")} />
        <Figure title="Deliveries" value={rate("rouse_deliveries_total")} note={`${total("rouse_deliveries_total")} in all`} />
        <Figure title="Found by the scan" value={total("rouse_dispatch_recovered_total")} note="work that no signal told of" />
        <Figure title="Panics" value={total("rouse_http_panics_total")} />
      </dl>
      <div class="two">
        <div class="card">
          <h2>Reading the log</h2>
          {feeds.length ? <>
            <dl>
              {health(f.figures).map(([what, how, tone]) => <><dt>{what}</dt><dd class={tone}>{how}</dd></>)}
            </dl>
            <details class="raw"><summary>All figures</summary>
              <table class="plain"><tbody>{feeds.flatMap(([name, list]) => list.slice(0, 8).map((s, i) => (
                <tr key={`${name}${i}`}><td><code>{name.replace("rouse_", "")}</code>{Object.values(s.labels).length > 0 && <span class="muted"> {Object.values(s.labels).join(" ")}</span>}</td><td class="num">{/bytes/.test(name) ? bytes(s.value) : /seconds$/.test(name) ? span(s.value * 1000) : number.format(s.value)}</td></tr>
              )))}</tbody></table>
            </details>
          </> : <p class="muted">This gateway tells no figures here.</p>}
        </div>
        <div class="card">
          <h2>Plugins</h2>
          {plugins.error ? <p class="muted">{plugins.error}</p> : plugins.value.length ? (
            <ul class="plugins">{plugins.value.map((p) => (
              <li key={`${p.kind}/${p.name}`}>
                <Badge tone={stateTone[p.state] ?? "calm"}>{p.state.replaceAll("_", " ")}</Badge> <b>{p.name}</b> <span class="muted">{p.kind}{p.builtin ? ", built in" : ` ${p.version}`}{p.failures ? `, ${p.failures} failures in the last minute` : ""}{p.next_start ? `, again at ${clock(p.next_start)}` : ""}</span>
                {p.code && <p class="errortext">{p.code}{p.detail && `: ${p.detail}`}</p>}
              </li>
            ))}</ul>
          ) : <p class="muted">None run.</p>}
        </div>
        <div class="card">
          <h2>This page</h2>
          <dl>
            <dt>State</dt><dd>{connection.value.state}{connection.value.text && `: ${connection.value.text}`}</dd>
            <dt>Rows</dt><dd>{void (now.value, entities.version.value)}{number.format(entities.rows.size)} entities, {number.format(dispatch.rows.size)} dispatch states, {number.format(runners.rows.size)} runners</dd>
            {heap && <><dt>Memory</dt><dd>{bytes(heap)}</dd></>}
          </dl>
          <p><a href={`${location.pathname.replace(/\/_electric\/ui\/.*$/, "")}/openapi.json`}>OpenAPI</a> · <a href={`${location.pathname.replace(/\/_electric\/ui\/.*$/, "")}/readyz`}>Readiness</a> · <a href={`${location.pathname.replace(/\/_electric\/ui\/.*$/, "")}/metrics`}>Metrics</a></p>
          <Raw value={f.reasons} summary="What readiness says" />
        </div>
      </div>
    </section>
  )
}

function bytes(n: number): string {
  return n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : n < 2 ** 30 ? `${(n / (1 << 20)).toFixed(1)} MiB` : `${(n / 2 ** 30).toFixed(1)} GiB`
}
