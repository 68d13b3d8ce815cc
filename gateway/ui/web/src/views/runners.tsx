// Runners and pools: who is there, and what each has to do.
import { useEffect, useState } from "preact/hooks"
import { get, Problem, textOf } from "../api"
import { Badge, Empty, Icon, useNarrow, VirtualList } from "../bits"
import { Do } from "../dialogs"
import { millis } from "../rows"
import { now, runners, runnersShown, type RunnerShown } from "../store"
import { person } from "../timeline"
import { ago, full, span } from "../words"
import { setMember, setRunner } from "./actions"
import { entityLink } from "./entities"

export interface Pool {
  id: string
  name: string
  owner_principal: string
  admin_status: string
  capacity_policy: { maxConcurrentClaimsPerRunner?: number; maxTotalClaims?: number }
  members: { runner_id: string; label?: string; owner_principal?: string; status: string; liveness?: string; active_claims: number; capacity?: number }[]
  active_claims: number
  waiting_wakes: number
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
      <Do class="small" label={`${enabled ? "Disable" : "Enable"} ${r.runner.label}`} what={() => setRunner(r.runner, !enabled)}>{enabled ? "Disable" : "Enable"}</Do>
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
          {pools.value.map((p) => <PoolCard key={p.id} pool={p} again={pools.again} />)}
        </div>
      )}
      {list.length ? <VirtualList items={list} height={narrow ? 124 : 60} label="Runners" id={(r) => r.runner.id} row={(r) => <Runner of={r} />} />
        : runners.state.value === "loading" ? <div class="skeleton" aria-busy="true"><span /><span /><span /></div>
          : <Empty title="No runners yet."><p>Start one: <code>rouse runner run --help</code></p></Empty>}
    </section>
  )
}

function PoolCard({ pool: p, again }: { pool: Pool; again: () => void }) {
  const most = p.capacity_policy?.maxTotalClaims, each = p.capacity_policy?.maxConcurrentClaimsPerRunner
  const part = most ? Math.min(1, p.active_claims / most) : 0
  const members = p.members ?? []
  return (
    <div class="card pool" role="listitem">
      <header><Icon name="pool" /><b>{p.name || p.id}</b>{p.name && p.name !== p.id && <span class="muted">{p.id}</span>}{p.admin_status === "disabled" && <Badge tone="held">disabled</Badge>}</header>
      <p><b>{p.active_claims}</b>{most ? ` of ${most}` : ""} held, <span class={p.waiting_wakes ? "warn" : "muted"}><b>{p.waiting_wakes}</b> waiting</span>{each ? <span class="muted">, {each} a runner</span> : null}</p>
      {most ? <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="4" /><rect class="part" width={part * 100} height="4" /></svg> : null}
      <ul class="members">
        {members.slice(0, 12).map((m) => (
          <li key={m.runner_id}><span class={`dot ${m.status !== "active" ? "held" : m.liveness === "online" ? "good" : "dim"}`} aria-hidden="true" />
            <span class="name">{m.label || m.runner_id} <span class="muted">{m.status !== "active" ? m.status === "disabled" && m.active_claims ? "draining" : m.status : m.liveness ?? "offline"}, {m.active_claims} held</span></span>
            {m.status !== "invited" && <Do class="small quiet" label={`${m.status === "active" ? "Drain" : "Undrain"} ${m.label || m.runner_id}`}
              what={async () => { const t = await setMember(p.id, m.runner_id, m.label || m.runner_id, m.status !== "active"); again(); return t }}>{m.status === "active" ? "Drain" : "Undrain"}</Do>}</li>
        ))}
        {members.length > 12 && <li class="muted">and {members.length - 12} more</li>}
        {!members.length && <li class="muted">no members yet</li>}
      </ul>
    </div>
  )
}
