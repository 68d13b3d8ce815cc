// A wake's path, drawn as a sequence: minted, told, claimed, kept, given back.
import { Badge } from "../bits"
import { millis } from "../rows"
import { now, pools, runners } from "../store"
import { clock, span } from "../words"
import { Deliveries, type Claim, type Wake } from "./entity"

interface Step {
  /** From and to which lane; the same for a step of its own. */
  from: number
  to: number
  words: string
  at: number
  tone?: string
  /** Has not happened yet. */
  open?: boolean
}

/** A name that fits between two lanes. */
const short = (s: string) => (s.length > 16 ? `${s.slice(0, 15)}…` : s)

const lanes = ["Stream", "Router", "Target", "Holder"]

function offsets(acked: unknown): string {
  const list = Array.isArray(acked) ? acked : []
  const last = list.map((a) => (a as { offset?: string }).offset ?? "").filter(Boolean).pop()
  return last ? ` to ${last.replace(/^0+(?=\d)/, "").replace(/_0+(?=\d)/, "_")}` : ""
}

const nthOf = (w: Wake) => w.attempt ?? w.notification_public?.attempt ?? 1

/** A wake and those before it since there was progress, oldest first: the same work, tried again or elsewhere. */
export function chain(wake: Wake, wakes: Wake[]): Wake[] {
  const first = wake.epoch - nthOf(wake) + 1
  return wakes.filter((w) => w.epoch >= first && w.epoch <= wake.epoch).sort((a, b) => a.epoch - b.epoch).slice(-6)
}

function steps(w: Wake, c: Claim | undefined, to: string): Step[] {
  const nth = nthOf(w)
  const why = (w.notification_public?.triggerEvent ?? "message_received").replaceAll("_", " ")
  const at = millis(w.created_at), minted = `wake ${w.epoch}${nth > 1 ? `, attempt ${nth}` : ""}`
  const out: Step[] = why === "message received"
    ? [{ from: 0, to: 1, words: why, at }, { from: 1, to: 1, words: `${minted} minted`, at }]
    : [{ from: 1, to: 1, words: `${why}: ${minted}`, at }]
  const tries = w.attempts > 1 ? `, ${w.attempts} tries` : ""
  if (w.delivered_at) out.push({ from: 1, to: 2, words: `told ${to}${tries}`, at: millis(w.delivered_at) })
  else if (w.delivery_status === "failed") out.push({ from: 1, to: 2, words: `${to}: failed${tries}`, at: NaN, tone: "bad" })
  else if (!w.resolved_at) out.push({ from: 1, to: 2, words: `telling ${to}${tries}`, at: NaN, open: true })
  if (c) {
    out.push({ from: 3, to: 1, words: "claimed", at: millis(c.claimed_at), tone: "good" })
    const beat = millis(c.last_heartbeat_at)
    if (beat > millis(c.claimed_at)) out.push({ from: 3, to: 1, words: "heartbeat", at: beat })
    const acked = offsets(c.acked_streams)
    if (acked) out.push({ from: 3, to: 0, words: `acked${acked}`, at: millis(c.released_at) || beat, tone: "good" })
    if (c.status === "released") out.push({ from: 3, to: 1, words: c.next_wake ? "released, more to do" : "released", at: millis(c.released_at), tone: "good" })
    else if (c.status === "failed") out.push({ from: 3, to: 1, words: "released: failed", at: millis(c.released_at), tone: "bad" })
    else if (c.status === "active") out.push({ from: 3, to: 3, words: "working", at: NaN, open: true })
    else out.push({ from: 1, to: 3, words: c.status === "expired" ? "lease expired, fenced" : c.status, at: millis(c.released_at ?? c.lease_expires_at), tone: "warn" })
  } else if ([w.claim_status, w.delivery_status].includes("superseded")) out.push({ from: 1, to: 2, words: "taken back", at: millis(w.resolved_at), tone: "warn" })
  else if (w.resolved_at) out.push({ from: 1, to: 1, words: w.claim_status, at: millis(w.resolved_at) })
  else if (w.delivered_at) out.push({ from: 2, to: 2, words: "nobody has claimed it yet", at: NaN, open: true })
  return out
}

export function WakePath({ wake, claim, wakes, claims }: { wake: Wake; claim?: Claim; wakes: Wake[]; claims: Claim[] }) {
  void now.value
  const all = chain(wake, wakes)
  const toWhom = (w: Wake) => short(w.target_runner_id ? runners.rows.get(w.target_runner_id)?.label ?? w.target_runner_id
    : w.target_type === "worker-pool" ? (w.target_pool_id ? pools.rows.get(w.target_pool_id)?.name ?? w.target_pool_id : "the pool") : w.target_type)
  const list = all.flatMap((w) => steps(w, claims.find((c) => c.epoch === w.epoch), toWhom(w)))
  const x = (lane: number) => 44 + lane * 101
  const h = 30, top = 34
  const height = top + list.length * h + 6
  const began = millis(all[0]?.created_at ?? wake.created_at)
  const names = [...lanes]
  names[2] = all.length > 1 ? "Targets" : wake.target_type === "runner" ? "Wake stream" : wake.target_type === "worker-pool" ? "Pool" : wake.target_type === "webhook" ? "Webhook" : wake.target_type
  const said = list.map((s) => `${s.words}${Number.isNaN(s.at) ? "" : ` after ${span(s.at - began)}`}`).join("; ")
  return (
    <>
      <svg class="sequence" viewBox={`0 0 390 ${height}`} role="img" aria-label={`Wake ${wake.epoch}: ${said}`}>
        {names.map((n, i) => (
          <g key={i}>
            <text class="lane" x={x(i)} y={14} text-anchor="middle">{n}</text>
            <line class="life" x1={x(i)} x2={x(i)} y1={22} y2={height} />
          </g>
        ))}
        {list.map((s, i) => {
          const y = top + i * h + 14
          const cls = `step ${s.tone ?? ""} ${s.open ? "open" : ""}`
          const when = Number.isNaN(s.at) ? "" : s.at - began < 1 ? clock(s.at) : `+${span(s.at - began)}`
          if (s.from === s.to) {
            const right = s.from >= 2
            return (
              <g key={i} class={cls}>
                <circle cx={x(s.from)} cy={y} r={4.5} />
                <text x={x(s.from) + (right ? -10 : 10)} y={y + 4} text-anchor={right ? "end" : "start"}>{s.words} <tspan class="at">{when}</tspan></text>
              </g>
            )
          }
          const a = x(s.from), b = x(s.to), dir = Math.sign(b - a)
          return (
            <g key={i} class={cls}>
              <line x1={a} x2={b - dir * 6} y1={y} y2={y} />
              <path d={`M${b} ${y}l${-dir * 8} -4.500v9z`} />
              <text x={(a + b) / 2} y={y - 6} text-anchor="middle">{s.words} <tspan class="at">{when}</tspan></text>
            </g>
          )
        })}
      </svg>
      {claim && <p class="holder"><Badge tone={claim.status === "active" ? "good" : claim.status === "failed" ? "bad" : "calm"}>epoch {claim.epoch}</Badge> held by <b>{claim.runner_id ?? claim.holder ?? "a webhook"}</b> for {span(Math.max(0, (millis(claim.released_at) || now.value) - millis(claim.claimed_at)))}</p>}
      {claim?.error && <p class="errortext">{claim.error}</p>}
      <Deliveries wake={wake} open={!wake.resolved_at} />
    </>
  )
}
