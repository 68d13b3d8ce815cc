// One entity: its stream as a conversation, and how its work is going.
import { useEffect, useMemo, useState } from "preact/hooks"
import { useSignalEffect } from "@preact/signals"
import { call, entityPath, get, Problem, seg, textOf } from "../api"
import { Badge, Dot, Empty, Icon, Lease, Raw, TargetChip, toneOf, useNarrow } from "../bits"
import { attempt, Do, jsonOrText, say, showDialog } from "../dialogs"
import type { Target } from "../rows"
import { askAgain, dispatch, entities, now, show, shown } from "../store"
import { Tail } from "../tail"
import { person, readable, type Message } from "../timeline"
import { ago, clock, full, span, whenWords } from "../words"
import { millis, type Time } from "../rows"
import { Move, redeliver, redrive, Signal } from "./actions"
import { entityLink } from "./entities"
import { Conversation } from "./conversation"
import { WakePath } from "./wakepath"

export interface Wake {
  wake_id: string
  epoch: number
  target_type: string
  target_runner_id: string | null
  target_webhook_url: string | null
  target_pool_id?: string | null
  target_index?: number
  attempt?: number
  runner_wake_stream_offset: string | null
  notification_public?: { triggerEvent?: string; targetIndex?: number; attempt?: number; streams?: { path: string; offset: string }[] }
  delivery_status: string
  claim_status: string
  attempts: number
  created_at: string
  delivered_at: string | null
  claimed_at: string | null
  resolved_at: string | null
  next_attempt_at?: string | null
  deliveries?: Delivery[]
}

export interface Delivery {
  attempt: number
  transport: string
  started_at: string
  finished_at: string | null
  outcome: string | null
  status_code: number | null
  error: string | null
}

export interface Claim {
  epoch: number
  wake_id: string | null
  runner_id: string | null
  holder: string | null
  pool_id?: string | null
  status: string
  claimed_at: string
  last_heartbeat_at: string | null
  lease_expires_at: string | null
  released_at: string | null
  acked_streams: unknown
  next_wake: boolean | null
  error: string | null
}

interface EntityDetail { spawn_args?: unknown; sandbox?: unknown; parent?: string }
interface PastPolicy { revision: number; dispatch_policy: { targets?: Target[] } | null; moved_by?: string; reason?: string | null; replaced_at: string }

/** Wakes and claims, asked for again whenever the dispatch state's row changes. */
function useHistory(url: string) {
  const [state, set] = useState<{ wakes: Wake[]; claims: Claim[]; error: string; loaded: boolean }>({ wakes: [], claims: [], error: "", loaded: false })
  const [turn, again] = useState("")
  useSignalEffect(() => {
    void dispatch.version.value
    const d = dispatch.rows.get(url)
    again(`${d?.updated_at} ${d?.outstanding_wake_id} ${d?.active_epoch}`)
  })
  useEffect(() => {
    let here = true
    const ask = () => Promise.all([get<Wake[]>(`${entityPath(url)}/wakes`, { limit: 50 }), get<Claim[]>(`${entityPath(url)}/claims`, { limit: 50 })])
      .then(([wakes, claims]) => here && set({ wakes, claims, error: "", loaded: true }), (e) => {
        if (here) set((s) => ({ ...s, error: textOf(e) }))
        // There is no such entity, or none that may be seen; should that change, its row comes and this starts anew.
        if (e instanceof Problem && [401, 403, 404].includes(e.status)) clearInterval(timer)
      })
    void ask()
    // Deliveries that fail and heartbeats leave that row as it is.
    const timer = setInterval(() => document.visibilityState === "visible" && void ask(), 3000)
    return () => { here = false; clearInterval(timer) }
  }, [url, turn])
  return state
}

export function Entity({ url }: { url: string }) {
  const tail = useMemo(() => new Tail(url), [url])
  useEffect(() => () => tail.end(), [tail])
  const history = useHistory(url)
  // Two columns need more room than a tablet has upright.
  const narrow = useNarrow(900)
  const [pane, setPane] = useState<"stream" | "work">("stream")
  const [chosen, choose] = useState<string>("")
  void shown.value
  const row = entities.rows.get(url)
  if (!row) {
    return entities.state.value === "loading" ? <div class="skeleton" aria-busy="true"><span /><span /><span /></div>
      : <Empty title={`There is no entity ${url} that you may see.`}><p><a href="#/entities">All entities</a></p></Empty>
  }
  const s = show(row, now.value, true)
  const d = s.dispatch
  const claimed = !!d?.active_consumer_id
  const over = ["stopped", "killed"].includes(row.status)
  const wake = history.wakes.find((w) => w.wake_id === chosen) ?? history.wakes[0]
  return (
    <section class="page fill entitypage" aria-labelledby="title">
      <div class="head">
        <a class="quiet back" href="#/entities" aria-label="All entities"><Icon name="back" /></a>
        <div class="title">
          <h1 id="title">{url}</h1>
          <p class="now"><Dot code={s.code} /><strong class={`words ${toneOf(s.code)}`}>{s.display}</strong>
            {claimed && <Lease until={d!.active_lease_expires_at} from={d!.active_claimed_at} />}
            {d?.pending_since && !claimed && <span class="muted">for {span(Math.max(0, now.value - millis(d.pending_since)))}</span>}
          </p>
        </div>
        <div class="buttons">
          {s.code === "parked" && <Do class="primary" what={() => redrive(url)}>Redrive</Do>}
          <button onClick={() => showDialog(<Signal url={url} />)} disabled={over}>Signal</button>
          <button onClick={() => showDialog(<Move url={url} />)} disabled={over}>Move</button>
        </div>
      </div>
      {narrow && (
        <div class="tabs" role="group" aria-label="What is shown">
          <button aria-pressed={pane === "stream"} onClick={() => setPane("stream")}>Stream</button>
          <button aria-pressed={pane === "work"} onClick={() => setPane("work")}>Work</button>
        </div>
      )}
      <div class="columns">
        {(!narrow || pane === "stream") && (
          <div class="stream">
            <Conversation tail={tail} />
            {!over && <Composer url={url} tail={tail} />}
          </div>
        )}
        {(!narrow || pane === "work") && (
          <aside class="work" aria-label="How its work is going">
            {history.error && <p class="error" role="alert">{history.error}</p>}
            {d?.last_error && <div class="card bad"><h2>What went wrong last</h2><p class="errortext">{d.last_error}</p>
              {history.claims.some((c) => c.status === "failed") && <Failures url={url} turn={d.updated_at} />}</div>}
            <div class="card">
              <h2>Targets</h2>
              <Targets targets={row.dispatch_policy?.targets ?? []} active={activeTarget(row.dispatch_policy?.targets ?? [], d?.outstanding_wake_target, history.claims[0], claimed, history.wakes[0])} />
              {row.dispatch_policy?.giveUp && <p class="muted">Parked {[row.dispatch_policy.giveUp.afterMs && `after ${span(row.dispatch_policy.giveUp.afterMs)}`, row.dispatch_policy.giveUp.attempts && `after ${row.dispatch_policy.giveUp.attempts} tries`].filter(Boolean).join(" or ")}.</p>}
            </div>
            <div class="card">
              <h2>{wake ? `Wake ${wake.epoch}` : "Wakes"}</h2>
              {wake ? <WakePath wake={wake} claim={history.claims.find((c) => c.epoch === wake.epoch)} wakes={history.wakes} claims={history.claims} /> : <p class="muted">{history.loaded ? "None yet: nothing has asked for work." : "…"}</p>}
              {history.wakes.length > 0 && <Wakes wakes={history.wakes} claims={history.claims} chosen={wake?.wake_id} choose={choose} />}
            </div>
            <About url={url} createdBy={row.created_by} createdAt={row.created_at} tags={row.tags} parent={row.parent} policyAt={JSON.stringify(row.dispatch_policy)} />
          </aside>
        )}
      </div>
    </section>
  )
}

/** What failed runs have left on the entity's error stream, the newest first. */
function Failures({ url, turn }: { url: string; turn: string }) {
  const [state, set] = useState<{ rows: Message[]; error: string }>({ rows: [], error: "" })
  useEffect(() => {
    let here = true
    get<Message[]>(`${url.split("/").map(seg).join("/")}/error`, { offset: "-1" }).then((rows) => here && set({ rows: rows.slice(-20).reverse(), error: "" }), (e) => here && set({ rows: [], error: textOf(e) }))
    return () => { here = false }
  }, [url, turn])
  return (
    <details class="raw"><summary>The log of failed runs</summary>
      {state.error && <p class="errortext">{state.error}</p>}
      {state.rows.map((m, i) => <pre key={i}>{readable(m.value?.message ?? m.value?.error ?? m.value ?? m)}</pre>)}
    </details>
  )
}

/** Which target has the work now, or -1. */
function activeTarget(targets: Target[], open: Target | null | undefined, claim: Claim | undefined, claimed: boolean, wake: Wake | undefined): number {
  const at = (t: Target) => targets.findIndex((x) => x.type === t.type && x.runnerId === t.runnerId && x.workerPoolId === t.workerPoolId && x.url === t.url)
  if (open) return at(open)
  if (!claimed || !claim) return -1
  const index = wake?.epoch === claim.epoch ? wake.target_index ?? wake.notification_public?.targetIndex : undefined
  if (index !== undefined) return index
  return targets.findIndex((t) => t.type === wake?.target_type && (t.type !== "runner" || t.runnerId === claim.runner_id) && (!t.url || t.url === wake.target_webhook_url))
}

function Targets({ targets, active }: { targets: Target[]; active: number }) {
  if (!targets.length) return <p class="muted">None: its work waits until it is moved to one.</p>
  return (
    <ol class="targets">
      {targets.map((t, i) => (
        <li key={i} class={i === active ? "on" : ""}>
          <TargetChip target={t} active={i === active} />
          {i === active && <Badge tone="good">now</Badge>}
          {t.when && (i < targets.length - 1 || targets.length > 1) && <p class="muted">on to the next if {whenWords(t)}</p>}
        </li>
      ))}
    </ol>
  )
}

const claimTone: Record<string, string> = { active: "good", released: "calm", expired: "warn", failed: "bad" }

function Wakes({ wakes, claims, chosen, choose }: { wakes: Wake[]; claims: Claim[]; chosen?: string; choose: (id: string) => void }) {
  return (
    <div class="wakes" role="group" aria-label="Wakes, newest first">
      {wakes.map((w) => {
        const c = claims.find((x) => x.epoch === w.epoch)
        const how = c?.status ?? (w.claim_status === "superseded" ? "superseded" : w.delivery_status)
        return (
          <button key={w.wake_id} class="wakerow" aria-pressed={w.wake_id === chosen} onClick={() => choose(w.wake_id)}>
            <b>{w.epoch}</b>
            <span class="to">{w.target_runner_id ?? w.target_pool_id ?? w.target_webhook_url ?? (c?.runner_id ? `${c.runner_id} of the pool` : w.target_type.replace("worker-pool", "pool"))}</span>
            <Badge tone={c ? claimTone[c.status] : how === "failed" ? "bad" : "calm"}>{how}</Badge>
            <time title={full(w.created_at)}>{clock(w.created_at)}</time>
          </button>
        )
      })}
    </div>
  )
}

/** What the wake's own route tells: each delivery with its outcome. */
export function Deliveries({ wake, open }: { wake: Wake; open: boolean }) {
  const [state, set] = useState<{ detail?: Wake; error: string }>({ error: "" })
  useEffect(() => {
    let here = true
    get<Wake>(`/_electric/wakes/${wake.wake_id}`).then((detail) => here && set({ detail, error: "" }), (e) => here && set({ error: textOf(e) }))
    return () => { here = false }
  }, [wake.wake_id, wake.attempts, wake.delivery_status, wake.resolved_at])
  const list = state.detail?.deliveries ?? []
  return (
    <div class="deliveries">
      {list.length > 0 && (
        <table>
          <caption class="sr">Delivery attempts</caption>
          <thead><tr><th>Try</th><th>By</th><th>Outcome</th><th>Took</th></tr></thead>
          <tbody>
            {list.map((a) => (
              <tr key={a.attempt}>
                <td>{a.attempt}</td><td>{a.transport}</td>
                <td class={a.outcome && !["accepted", "delivered", "done"].includes(a.outcome) ? "bad" : ""}>{a.outcome ?? "under way"}{a.status_code ? ` ${a.status_code}` : ""}{a.error && <div class="errortext">{a.error}</div>}</td>
                <td>{a.finished_at ? span(millis(a.finished_at) - millis(a.started_at)) : "…"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {state.detail?.next_attempt_at && open && <p class="muted">Next try {clock(state.detail.next_attempt_at)}.</p>}
      {open && wake.claim_status !== "claimed" && <Do class="small" what={() => redeliver(wake.wake_id)}>Deliver again</Do>}
      <Raw value={state.detail ?? wake} summary="The wake as it is stored" />
    </div>
  )
}

function Composer({ url, tail }: { url: string; tail: Tail }) {
  const [text, set] = useState("")
  const [busy, setBusy] = useState(false)
  const send = async () => {
    if (!text.trim() || busy) return
    setBusy(true)
    await attempt(async () => {
      const r = await call<{ txid: string; key: string }>("POST", `${entityPath(url)}/send`, { payload: jsonOrText(text) })
      set("")
      askAgain(url)
      if (!(await tail.until(r.txid, r.key))) say("It is sent, and has not been seen on the stream yet.")
    })
    setBusy(false)
  }
  return (
    <form class="composer" onSubmit={(e) => { e.preventDefault(); void send() }}>
      <textarea aria-label="Message" rows={1} value={text} placeholder={`Send to ${url}`} onInput={(e) => set(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); void send() } }} />
      <button class="primary" aria-label="Send" disabled={busy || !text.trim()}><Icon name="send" /></button>
    </form>
  )
}

function About({ url, createdBy, createdAt, tags, parent, policyAt }: { url: string; createdBy: string; createdAt: Time; tags: Record<string, string> | null; parent: string | null; policyAt: string }) {
  const [detail, set] = useState<EntityDetail>({})
  const [past, setPast] = useState<PastPolicy[]>([])
  useEffect(() => {
    let here = true
    get<EntityDetail>(entityPath(url)).then((v) => here && set(v), () => undefined)
    get<PastPolicy[]>(`${entityPath(url)}/policies`).then((v) => here && setPast(Array.isArray(v) ? v : []), () => undefined)
    return () => { here = false }
  }, [url, policyAt])
  const list = Object.entries(tags ?? {})
  return (
    <div class="card about">
      <h2>About</h2>
      <dl>
        <dt>Made by</dt><dd>{person(createdBy)}</dd>
        <dt>Made</dt><dd title={full(createdAt)}>{ago(createdAt, now.value)}</dd>
        {parent && <><dt>Parent</dt><dd><a href={entityLink(parent)}>{parent}</a></dd></>}
        {list.length > 0 && <><dt>Tags</dt><dd>{list.map(([k, v]) => <Badge key={k}>{k}: {v}</Badge>)}</dd></>}
      </dl>
      {detail.spawn_args !== undefined && detail.spawn_args !== null && <Raw value={detail.spawn_args} summary="Arguments" />}
      {past.length > 0 && (
        <details class="raw" open><summary>Moved {past.length === 1 ? "once" : `${past.length} times`}</summary>
          <ol class="past">{past.map((p) => (
            <li key={p.revision}>from {p.dispatch_policy?.targets?.map((t, i) => <TargetChip key={i} target={t} />)} <time title={full(p.replaced_at)}>{ago(p.replaced_at, now.value)}</time>
              <span class="muted"> {[p.moved_by && `by ${person(p.moved_by)}`, p.reason].filter(Boolean).join(": ")}</span></li>
          ))}</ol>
        </details>
      )}
    </div>
  )
}
