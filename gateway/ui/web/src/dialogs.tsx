// Dialogs for what a person does, and the short messages about how it went.
import type { ComponentChildren } from "preact"
import { signal } from "@preact/signals"
import { useEffect, useRef, useState } from "preact/hooks"
import { textOf } from "./api"
import { Icon } from "./bits"

const open = signal<ComponentChildren | null>(null)
const toasts = signal<{ id: number; text: string; bad: boolean }[]>([])
let number = 0

export const showDialog = (content: ComponentChildren) => { open.value = content }
export const closeDialog = () => { open.value = null }

export function say(text: string, bad = false) {
  const id = ++number
  toasts.value = [...toasts.value.slice(-3), { id, text, bad }]
  setTimeout(() => { toasts.value = toasts.value.filter((t) => t.id !== id) }, bad ? 12_000 : 4000)
}

/** Does something and says how it went; a refusal is shown in the gateway's words. */
export async function attempt(what: () => Promise<string | void>): Promise<boolean> {
  try {
    const text = await what()
    if (text) say(text)
    return true
  } catch (e) {
    say(textOf(e), true)
    return false
  }
}

/** A button that does one thing, once: a second press while the first is under way does nothing. */
export function Do({ what, label, class: cls, children }: { what: () => Promise<string | void>; label?: string; class?: string; children: ComponentChildren }) {
  const [busy, set] = useState(false)
  const go = async () => {
    if (busy) return
    set(true)
    await attempt(what)
    set(false)
  }
  return <button class={cls} aria-label={label} aria-busy={busy} onClick={go}>{children}</button>
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {toasts.value.map((t) => (
        <div key={t.id} class={`toast ${t.bad ? "bad" : ""}`} role={t.bad ? "alert" : "status"}>
          <span>{t.text}</span>
          <button class="quiet" aria-label="Dismiss" onClick={() => { toasts.value = toasts.value.filter((x) => x.id !== t.id) }}><Icon name="close" /></button>
        </div>
      ))}
    </div>
  )
}

export function Dialogs() {
  const ref = useRef<HTMLDialogElement>(null)
  const content = open.value
  // A press that began in the dialog, as when text is marked, does not close it where it ends.
  const outside = useRef(false)
  useEffect(() => {
    if (content && !ref.current?.open) ref.current?.showModal()
  }, [content])
  if (!content) return null
  return <dialog ref={ref} onClose={closeDialog} onPointerDown={(e) => { outside.current = e.target === ref.current }} onClick={(e) => { if (outside.current && e.target === ref.current) closeDialog() }}>{content}</dialog>
}

/** A form in a dialog. It stays open, with the gateway's words, until what it does succeeds. */
export function Form({ title, action, danger, children, submit }: { title: string; action: string; danger?: boolean; children?: ComponentChildren; submit: (data: FormData) => Promise<string | void> }) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState("")
  const go = async (e: SubmitEvent) => {
    e.preventDefault()
    setBusy(true)
    setError("")
    const mine = open.value
    try {
      const text = await submit(new FormData(e.target as HTMLFormElement))
      if (open.value === mine) closeDialog() // and not one that was opened since
      if (text) say(text)
    } catch (e) {
      setError(textOf(e))
    } finally {
      setBusy(false)
    }
  }
  return (
    <form class="dialog" onSubmit={go} aria-label={title}>
      <h2>{title}</h2>
      {children}
      {error && <p class="error" role="alert">{error}</p>}
      <div class="actions">
        <button type="button" class="quiet" onClick={closeDialog}>Cancel</button>
        <button class={danger ? "danger" : "primary"} disabled={busy}>{busy ? "…" : action}</button>
      </div>
    </form>
  )
}

/** JSON if it reads as JSON, else the text itself. */
export function jsonOrText(s: string): unknown {
  const t = s.trim()
  if (!/^[[{"\d-]|^(true|false|null)$/.test(t)) return s
  try { return JSON.parse(t) } catch { return s }
}

/** A field's JSON object, undefined when empty. Throws in words. */
export function jsonField(data: FormData, name: string, label: string): Record<string, unknown> | undefined {
  const t = String(data.get(name) ?? "").trim()
  if (!t) return undefined
  try {
    const v = JSON.parse(t)
    if (v && typeof v === "object" && !Array.isArray(v)) return v
  } catch { /* said below */ }
  throw new Error(`${label} must be a JSON object.`)
}
