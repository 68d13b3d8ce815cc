// Work that was given up, and how it is tried again.
import { Badge, Empty } from "../bits"
import { call } from "../api"
import { attempt, Form, showDialog } from "../dialogs"
import { now } from "../store"
import { ago, full } from "../words"
import { redrive } from "./actions"
import { entityLink } from "./entities"
import { useAsked } from "./runners"

interface ParkedWork {
  url?: string
  entity_url?: string
  type?: string
  parked_at: string
  parked_reason?: string
  reason?: string
  attempts?: number
  last_error?: string | null
}

const reasons: Record<string, string> = {
  attempts_exhausted: "tried too often", unclaimed: "nobody took it in time", delivery_failed: "delivery failed", no_target: "no target is left",
}

function RedriveAll({ list, done }: { list: ParkedWork[]; done: () => void }) {
  const why = [...new Set(list.map((p) => p.parked_reason ?? p.reason ?? ""))].filter(Boolean)
  const types = [...new Set(list.map((p) => p.type ?? (p.url ?? p.entity_url ?? "").split("/")[1]))].filter(Boolean)
  return (
    <Form title="Redrive parked work" action="Redrive" submit={async (data) => {
      const type = String(data.get("type") ?? ""), reason = String(data.get("reason") ?? "")
      const r = await call<{ count?: number; redriven?: number }>("POST", "/_electric/parked/redrive", { ...(type && { type }), ...(reason && { reason }) })
      done()
      return `${r?.count ?? r?.redriven ?? "All"} tried again.`
    }}>
      <label>Type<select name="type"><option value="">all</option>{types.map((t) => <option key={t}>{t}</option>)}</select></label>
      <label>Reason<select name="reason"><option value="">any</option>{why.map((r) => <option key={r} value={r}>{reasons[r] ?? r}</option>)}</select></label>
      <p class="hint">Each starts again at its first target.</p>
    </Form>
  )
}

export function Parked() {
  const parked = useAsked<ParkedWork[] | { parked?: ParkedWork[] }>("/_electric/parked", [])
  const list = Array.isArray(parked.value) ? parked.value : parked.value.parked ?? []
  return (
    <section class="page" aria-labelledby="title">
      <div class="head"><h1 id="title">Parked <span class="count">{list.length}</span></h1><p class="muted">Work that was given up. Messages are kept.</p>
        {list.length > 0 && <button class="primary" onClick={() => showDialog(<RedriveAll list={list} done={parked.again} />)}>Redrive…</button>}</div>
      {parked.error && <p class="error" role="alert">{parked.error}</p>}
      {list.length > 0 ? (
        <ul class="parked">
          {list.map((p) => {
            const url = p.url ?? p.entity_url ?? ""
            const reason = p.parked_reason ?? p.reason ?? ""
            return (
              <li key={url} class="card">
                <span class="name"><a href={entityLink(url)}><b>{url}</b></a>{p.last_error && <span class="errortext">{p.last_error}</span>}</span>
                <Badge tone="bad" title={reason}>{reasons[reason] ?? reason}</Badge>
                {p.attempts !== undefined && <span class="muted">{p.attempts} tries</span>}
                <time class="muted" title={full(p.parked_at)}>{ago(p.parked_at, now.value)}</time>
                <button class="small" onClick={() => attempt(async () => { const t = await redrive(url); parked.again(); return t })}>Redrive</button>
              </li>
            )
          })}
        </ul>
      ) : parked.loaded && !parked.error && <Empty title="Nothing is parked."><p>What a policy's <code>giveUp</code> gives up waits here to be tried again.</p></Empty>}
    </section>
  )
}
