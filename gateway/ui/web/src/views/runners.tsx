// Runners and pools: who is there, and what each has to do.
import { useEffect, useState } from "preact/hooks"
import { get, Problem, textOf } from "../api"
import { Badge, Empty, Icon, useNarrow, VirtualList } from "../bits"
import { attempt } from "../dialogs"
import { millis } from "../rows"
import { now, runners, runnersShown, type RunnerShown } from "../store"
import { person } from "../timeline"
import { ago, full, span } from "../words"
import { setRunner } from "./actions"
import { entityLink } from "./entities"

export interface Pool {
  id: string
  name?: string
  owner_principal?: string
  admin_status: string
  max_concurrent_claims_per_runner?: number | null
  max_total_claims?: number | null
  members?: { runnerId: string; label?: string; ownerPrincipal?: string; status: string; online?: boolean; activeClaims?: number; capacity?: number | null }[]
  active_claims?: number
  waiting?: number
}

/** Asks again every few seconds while the page is seen. */
export function useAsked<T>(path: string, otherwise: T, every = 3000): { value: T; error: string; loaded: boolean; again: () => void } {
  const [state, set] = useState({ value: otherwise, error: "", loaded: false })
  const [turn, bump] = useState(0)
  useEffect(() => {
    let here = true
    const ask = () => get<T>(path).then((value) => here && set({ value, error: "", loaded: true }), (e) => {
      if (here) set((s) => ({ ...s, error: textOf(e), loaded: true }))
      // It will not be allowed the next time either.
      if (e instanceof Problem && [401, 403, 404].includes(e.status)) clearInterval(timer)
    })
    void ask()
    const timer = setInterval(() => document.visibilityState === "visible" && void ask(), every)
    return () => { here = false; clearInterval(timer) }
  }, [path, turn])
  return { ...state, again: () => bump((n) => n + 1) }
}

function Runner({ of: r }: { of: RunnerShown }) {
  const enabled = r.runner.admin_status === "enabled"
  const left = millis(r.diagnostics?.liveness_lease_expires_at) - now.value
  return (
    <div class="runner">
      <span class={`dot ${!enabled ? "held" : r.online ? "good" : "dim"}`} aria-hidden="true" />
      <span class="name"><b>{r.runner.label}</b><span class="muted">{r.runner.id} · {r.runner.kind} · {person(r.runner.owner_principal)}</span></span>
      <span class="live">{!enabled ? <Badge tone="held">disabled</Badge> : r.online ? <Badge tone="good" title={`The liveness lease has ${span(left)} left.`}>online</Badge> : <Badge tone="dim">offline</Badge>}
        <time class="muted" title={full(r.diagnostics?.last_seen_at)}>{r.diagnostics?.last_seen_at ? `seen ${ago(r.diagnostics.last_seen_at, now.value)}` : "never seen"}</time></span>
      <span class="load">
        <span title="Entities that it holds"><b>{r.holds.length}</b> held</span>
        <span title="Open wakes that wait for it" class={r.waits.length ? "warn" : "muted"}><b>{r.waits.length}</b> waiting</span>
        {r.holds[0] && <a href={entityLink(r.holds[0])}>{r.holds[0]}</a>}
      </span>
      <button class="small" onClick={() => attempt(() => setRunner(r.runner, !enabled))}>{enabled ? "Disable" : "Enable"}</button>
    </div>
  )
}

export function Runners() {
  const narrow = useNarrow()
  const list = runnersShown.value
  const pools = useAsked<Pool[]>("/_electric/worker-pools", [])
  const held = list.reduce((n, r) => n + r.holds.length, 0)
  const online = list.filter((r) => r.online).length
  return (
    <section class="page fill" aria-labelledby="title">
      <div class="head"><h1 id="title">Runners <span class="count">{list.length}</span></h1><p class="muted">{online} online, {held} {held === 1 ? "entity" : "entities"} held</p></div>
      {pools.value.length > 0 && (
        <div class="pools" role="list" aria-label="Pools">
          {pools.value.map((p) => <PoolCard key={p.id} pool={p} />)}
        </div>
      )}
      {list.length ? <VirtualList items={list} height={narrow ? 124 : 60} label="Runners" id={(r) => r.runner.id} row={(r) => <Runner of={r} />} />
        : runners.state.value === "loading" ? <div class="loading" aria-busy="true"><span /><span /><span /></div>
          : <Empty title="No runners yet."><p>Start one: <code>rouse runner run --help</code></p></Empty>}
    </section>
  )
}

function PoolCard({ pool: p }: { pool: Pool }) {
  const members = p.members ?? []
  const held = p.active_claims ?? members.reduce((n, m) => n + (m.activeClaims ?? 0), 0)
  const part = p.max_total_claims ? Math.min(1, held / p.max_total_claims) : 0
  return (
    <div class="card pool" role="listitem">
      <header><Icon name="pool" /><b>{p.name || p.id}</b>{p.admin_status === "disabled" && <Badge tone="held">disabled</Badge>}</header>
      <p><b>{held}</b>{p.max_total_claims ? ` of ${p.max_total_claims}` : ""} held, <span class={p.waiting ? "warn" : "muted"}><b>{p.waiting ?? 0}</b> waiting</span></p>
      {p.max_total_claims ? <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="4" /><rect class="part" width={part * 100} height="4" /></svg> : null}
      <ul class="members">
        {members.slice(0, 12).map((m) => (
          <li key={m.runnerId}><span class={`dot ${m.status !== "active" ? "held" : m.online ? "good" : "dim"}`} aria-hidden="true" />{m.label || m.runnerId}
            <span class="muted"> {m.status !== "active" ? m.status : m.online ? "online" : "offline"}, {m.activeClaims ?? 0} held{m.status === "disabled" && (m.activeClaims ?? 0) > 0 ? ", draining" : ""}</span></li>
        ))}
        {members.length > 12 && <li class="muted">and {members.length - 12} more</li>}
        {!members.length && <li class="muted">no members yet</li>}
      </ul>
    </div>
  )
}
