// Work that was given up, and how it is tried again.
import { Badge, Empty } from "../bits"
import { call } from "../api"
import { Do, Form, showDialog } from "../dialogs"
import { askParked, now, parked, parkedError, type ParkedWork } from "../store"
import { ago, full } from "../words"
import { redrive } from "./actions"
import { entityLink } from "./entities"

const reasons: Record<string, string> = {
  attempts_exhausted: "tried too often", unclaimed: "nobody took it in time", delivery_failed: "delivery failed", no_target: "no target is left",
}

function RedriveAll({ list }: { list: ParkedWork[] }) {
  const why = [...new Set(list.map((p) => p.reason))]
  const types = [...new Set(list.map((p) => p.type))]
  return (
    <Form title="Redrive parked work" action="Redrive" submit={async (data) => {
      const type = String(data.get("type") ?? ""), reason = String(data.get("reason") ?? "")
      const r = await call<{ redriven: number }>("POST", "/_electric/parked/redrive", { ...(type && { type }), ...(reason && { reason }) })
      askParked()
      return `${r.redriven} tried again.`
    }}>
      <label>Type<select name="type"><option value="">all</option>{types.map((t) => <option key={t} value={t}>{t}</option>)}</select></label>
      <label>Reason<select name="reason"><option value="">any</option>{why.map((r) => <option key={r} value={r}>{reasons[r] ?? r}</option>)}</select></label>
      <p class="hint">Each starts again at its first target.</p>
    </Form>
  )
}

export function Parked() {
  const list = parked.value
  return (
    <section class="page" aria-labelledby="title">
      <div class="head"><h1 id="title">Parked <span class="count">{list.length}</span></h1><p class="muted">Work that was given up. Its messages are kept.</p>
        {list.length > 0 && <button class="primary" onClick={() => showDialog(<RedriveAll list={list} />)}>Redrive…</button>}</div>
      {parkedError.value && <p class="error" role="alert">{parkedError.value}</p>}
      {list.length > 0 ? (
        <ul class="parked">
          {list.map((p) => (
            <li key={p.entity_url} class="card">
              <span class="name"><a href={entityLink(p.entity_url)}><b>{p.entity_url}</b></a>{p.last_error && <span class="errortext">{p.last_error}</span>}</span>
              <Badge tone="bad" title={p.reason}>{reasons[p.reason] ?? p.reason}</Badge>
              <span class="muted">{p.attempts} {p.attempts === 1 ? "try" : "tries"}</span>
              <time class="muted" title={full(p.parked_at)}>{ago(p.parked_at, now.value)}</time>
              <Do class="small" label={`Redrive ${p.entity_url}`} what={() => redrive(p.entity_url)}>Redrive</Do>
            </li>
          ))}
        </ul>
      ) : !parkedError.value && <Empty title="Nothing is parked."><p>What a policy's <code>giveUp</code> gives up waits here to be tried again.</p></Empty>}
    </section>
  )
}
