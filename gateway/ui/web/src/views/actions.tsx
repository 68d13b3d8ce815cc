// What a person does: spawn, signal, move, redrive, redeliver, a runner's rest.
// Nothing is shown before it has happened: each waits for its own change.
import { useEffect, useState } from "preact/hooks"
import { call, entityPath, get, seg, textOf } from "../api"
import { Form, jsonField, jsonOrText } from "../dialogs"
import type { Policy, RunnerRow, Target } from "../rows"
import { askParked, dispatch, entities, parked, runners, runnersShown } from "../store"
import { targetName } from "../words"
import { entityLink } from "./entities"

interface EntityType { name: string; description?: string }
interface Pool { id: string; name?: string }

/** Waits for a change to be seen; says so if it was not. */
export async function seen(txid: number | undefined, done: string): Promise<string> {
  return (await entities.until(txid)) ? done : `${done} It has not been seen here yet.`
}

function useFetched<T>(path: string, otherwise: T): { value: T; error: string } {
  const [state, set] = useState({ value: otherwise, error: "" })
  useEffect(() => {
    let here = true
    get<T>(path).then((value) => here && set({ value, error: "" }), (e) => here && set({ value: otherwise, error: textOf(e) }))
    return () => { here = false }
  }, [path])
  return state
}

/** Picks the targets of a policy, in the order in which they are tried. */
function Targets({ policy, empty }: { policy?: Policy | null; empty: string }) {
  const pools = useFetched<Pool[]>("/_electric/worker-pools", [])
  const [rows, set] = useState<string[]>(() => policy?.targets?.map((t) => JSON.stringify(t)) ?? [""])
  const known = new Map<string, string>()
  for (const r of runnersShown.value) known.set(JSON.stringify({ type: "runner", runnerId: r.runner.id }), `runner ${r.runner.label}${r.online ? "" : " (offline)"}`)
  for (const p of pools.value) known.set(JSON.stringify({ type: "worker-pool", workerPoolId: p.id }), `pool ${p.name || p.id}`)
  for (const t of policy?.targets ?? []) if (!known.has(JSON.stringify(t))) known.set(JSON.stringify(t), `${t.type} ${targetName(t, (id) => runners.rows.get(id)?.label)} (as it is)`)
  const custom = (v: string) => v !== "" && !known.has(v)
  return (
    <fieldset>
      <legend>Targets, tried in this order</legend>
      {rows.map((value, i) => (
        <div class="pick" key={i}>
          <span class="order">{i + 1}</span>
          <select aria-label={`Target ${i + 1}`} name={custom(value) ? undefined : "target"} value={custom(value) ? "webhook" : value}
            onChange={(e) => set(rows.with(i, e.currentTarget.value === "webhook" ? '{"type":"webhook","url":"https://"}' : e.currentTarget.value))}>
            <option value="">{i === 0 ? empty : "–"}</option>
            {[...known].map(([json, words]) => <option key={json} value={json}>{words}</option>)}
            <option value="webhook">another, as JSON…</option>
          </select>
          {custom(value) && <input name="target" aria-label={`Target ${i + 1} as JSON`} value={value} onInput={(e) => set(rows.with(i, e.currentTarget.value || " "))} />}
        </div>
      ))}
      {rows.length < 8 && <button type="button" class="quiet" onClick={() => set([...rows, ""])}>Add a fallback</button>}
    </fieldset>
  )
}

function chosenPolicy(data: FormData, giveUp?: Policy["giveUp"]): Policy | undefined {
  const targets: Target[] = []
  for (const t of data.getAll("target")) {
    const text = String(t).trim()
    if (!text) continue
    try { targets.push(JSON.parse(text)) } catch { throw new Error("A target must be a JSON object, such as {\"type\":\"webhook\",\"url\":\"https://…\"}.") }
  }
  return targets.length ? { targets, ...(giveUp && { giveUp }) } : undefined
}

export function Spawn() {
  const types = useFetched<EntityType[]>("/_electric/entity-types", [])
  const submit = async (data: FormData) => {
    const type = String(data.get("type")).trim(), id = String(data.get("id")).trim()
    const message = String(data.get("message") ?? "")
    const url = `/${type}/${id}`
    const e = await call<{ txid: number }>("PUT", entityPath(url), {
      args: jsonField(data, "args", "Arguments"), tags: jsonField(data, "tags", "Tags"),
      dispatch_policy: chosenPolicy(data), ...(message && { initialMessage: jsonOrText(message) }),
    })
    const text = await seen(e.txid, `${url} is there.`)
    location.hash = entityLink(url)
    return text
  }
  return (
    <Form title="Spawn an entity" action="Spawn" submit={submit}>
      {types.error && <p class="error">{types.error}</p>}
      <div class="pair">
        <label>Type<input name="type" list="types" required autocomplete="off" autofocus /></label>
        <datalist id="types">{types.value.map((t) => <option key={t.name} value={t.name}>{t.description}</option>)}</datalist>
        <label>Name<input name="id" required autocomplete="off" placeholder="1" /></label>
      </div>
      <Targets empty="as the type says" />
      <label>First message<textarea name="message" rows={2} placeholder="text, or JSON" /></label>
      <details><summary>Arguments and tags</summary>
        <label>Arguments<textarea name="args" rows={2} placeholder={'{"colour":"blue"}'} /></label>
        <label>Tags<textarea name="tags" rows={2} placeholder={'{"team":"red"}'} /></label>
      </details>
    </Form>
  )
}

const signals: [name: string, words: string][] = [
  ["SIGINT", "interrupt the run"], ["SIGHUP", "reload"], ["SIGUSR", "as the handler reads it"], ["SIGSTOP", "pause: nothing is dispatched"],
  ["SIGCONT", "go on"], ["SIGTERM", "stop after this run"], ["SIGKILL", "kill at once, for good"],
]

export function Signal({ url }: { url: string }) {
  const [name, set] = useState("SIGINT")
  const submit = async (data: FormData) => {
    const reason = String(data.get("reason") ?? "").trim()
    const r = await call<{ txid: number; previous_state: string; new_state: string }>("POST", `${entityPath(url)}/signal`, { signal: name, ...(reason && { reason }) })
    return seen(r.txid, r.previous_state === r.new_state ? `${name} is sent.` : `${name}: ${r.previous_state} → ${r.new_state}.`)
  }
  return (
    <Form title={`Signal ${url}`} action={name === "SIGKILL" ? "Kill" : "Send"} danger={name === "SIGKILL" || name === "SIGTERM"} submit={submit}>
      <fieldset class="choices"><legend>Signal</legend>
        {signals.map(([s, words]) => (
          <label key={s} class="choice"><input type="radio" name="signal" value={s} checked={s === name} onChange={() => set(s)} /><b>{s}</b><span>{words}</span></label>
        ))}
      </fieldset>
      <label>Reason<input name="reason" autocomplete="off" /></label>
    </Form>
  )
}

export function Move({ url }: { url: string }) {
  void dispatch.version.value
  const policy = entities.rows.get(url)?.dispatch_policy ?? null
  const claimed = !!dispatch.rows.get(url)?.active_consumer_id
  const submit = async (data: FormData) => {
    const next = chosenPolicy(data, policy?.giveUp)
    if (!next) throw new Error("Choose a target to move it to.")
    const reason = String(data.get("reason") ?? "").trim()
    const r = await call<{ txid?: number; release_by?: string | null; outcome?: string }>("POST", `${entityPath(url)}/move`, {
      dispatch_policy: next, deadline_ms: Number(data.get("deadline") ?? 30) * 1000, ...(reason && { reason }),
    })
    return seen(r.txid, r.release_by ? "It moves as soon as its holder lets go." : r.outcome === "unchanged" ? "That is where it is already." : "It has moved.")
  }
  return (
    <Form title={`Move ${url}`} action="Move" submit={submit}>
      <Targets policy={policy} empty="–" />
      <label>Time for the holder to let go, in seconds<input type="number" name="deadline" min={0} max={600} defaultValue={30} /></label>
      <p class="hint">{claimed ? "Whoever holds it now is asked to release; at the deadline it is fenced. What it has acked is kept." : "Nobody holds it, so it moves at once."}</p>
      <label>Reason<input name="reason" autocomplete="off" /></label>
    </Form>
  )
}

export async function setRunner(r: RunnerRow, on: boolean): Promise<string> {
  await call("POST", `/_electric/runners/${seg(r.id)}/${on ? "enable" : "disable"}`)
  const end = Date.now() + 10_000
  while (runners.rows.get(r.id)?.admin_status !== (on ? "enabled" : "disabled") && Date.now() < end) await new Promise((ok) => setTimeout(ok, 100))
  return on ? `${r.label} is enabled.` : `${r.label} is disabled: it gets nothing new, and what it holds runs to its end.`
}

export async function redeliver(wakeId: string): Promise<string> {
  await call("POST", `/_electric/wakes/${seg(wakeId)}/redeliver`)
  return "It is delivered again."
}

export async function redrive(url: string): Promise<string> {
  await call("POST", `${entityPath(url)}/redrive`)
  parked.value = parked.value.filter((p) => p.entity_url !== url)
  askParked()
  return `${url} is tried again.`
}

/** Drains a member of a pool, or lets it take part again. */
export async function setMember(pool: string, runnerId: string, label: string, on: boolean): Promise<string> {
  await call("PUT", `/_electric/worker-pools/${seg(pool)}/members/${seg(runnerId)}`, { status: on ? "active" : "disabled" })
  return on ? `${label} takes part again.` : `${label} is drained: it gets nothing new of this pool, and what it holds runs to its end.`
}
