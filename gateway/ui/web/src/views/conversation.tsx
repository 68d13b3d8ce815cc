// The stream, as a conversation: who asked on the one side, who worked on the other.
import { memo } from "preact/compat"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { Badge } from "../bits"
import type { Tail } from "../tail"
import type { Item } from "../timeline"
import { clock, full } from "../words"

/** How many rows are drawn at first, and more with each asking. */
const page = 300

export function Conversation({ tail }: { tail: Tail }) {
  void tail.version.value
  const box = useRef<HTMLDivElement>(null)
  const atEnd = useRef(true)
  const [count, setCount] = useState(page)
  const [raw, setRaw] = useState(false)
  const items = tail.timeline.items
  const visible = items.slice(-count)
  // Follows the end as long as the reader is there.
  useLayoutEffect(() => { if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight })
  // Earlier entries come in above what is being read.
  const below = useRef(0)
  useLayoutEffect(() => {
    const el = box.current!
    if (below.current) el.scrollTop = el.scrollHeight - below.current
    below.current = 0
  }, [count])
  useEffect(() => {
    const el = box.current!
    const look = () => { atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < 48 }
    el.addEventListener("scroll", look, { passive: true })
    return () => el.removeEventListener("scroll", look)
  }, [])
  return (
    <>
      <div class="streamhead">
        <span class="muted">{items.length} {items.length === 1 ? "entry" : "entries"}{tail.state.value === "closed" ? ", closed" : ""}</span>
        <label class="toggle"><input type="checkbox" checked={raw} onChange={(e) => setRaw(e.currentTarget.checked)} />as JSON</label>
      </div>
      <div class="conversation" ref={box} role="log" aria-label="Stream" tabIndex={0}>
        {tail.state.value === "broken" && <p class="error" role="alert">{tail.error.value}</p>}
        {tail.state.value === "loading" && !items.length && <div class="skeleton" aria-busy="true"><span /><span /></div>}
        {items.length > count && <button class="quiet more" onClick={() => { atEnd.current = false; below.current = box.current!.scrollHeight - box.current!.scrollTop; setCount(count + page) }}>Show earlier ({items.length - count})</button>}
        {visible.map((i) => (raw ? <pre key={i.id} class="rawrow">{JSON.stringify(i.raw)}</pre> : <Entry key={i.id} item={i} turn={i.turn} />))}
      </div>
    </>
  )
}

const Entry = memo(function Entry({ item: i }: { item: Item; turn: number }) {
  const time = i.at && <time title={full(i.at)}>{clock(i.at)}</time>
  const cls = `entry ${i.kind} ${i.gone ? "gone" : ""}`
  switch (i.kind) {
    case "inbox":
      return (
        <article class={cls}>
          <header><b>{i.who}</b>{i.title && <Badge>{i.title}</Badge>}{i.status && i.status !== "processed" && i.status !== "immediate" && <Badge tone="warn">{i.gone ? "taken back" : i.status}</Badge>}{time}</header>
          <div class="bubble"><Text text={i.text} /></div>
        </article>
      )
    case "text":
      return <article class={cls}><div class="bubble"><Text text={i.text} more={i.status === "streaming"} /></div>{time}</article>
    case "reasoning":
      return <article class={cls}><details><summary>Reasoning</summary><Text text={i.text} /></details></article>
    case "tool":
      return (
        <article class={cls}>
          <details open={i.status === "failed"}>
            <summary><span class="tool">{i.title}</span>{i.status && <Badge tone={i.status === "failed" ? "bad" : i.status === "completed" ? "good" : "busy"}>{i.status.replaceAll("_", " ")}</Badge>}{time}</summary>
            {i.text && <pre>{i.text}</pre>}
          </details>
        </article>
      )
    case "error":
      return <article class={cls}><header><b>{i.title}</b>{time}</header><p class="errortext">{i.text}</p></article>
    case "raw":
      return <article class={cls}><details><summary><code>{i.title}</code>{time}</summary><pre>{i.text}</pre></details></article>
    default:
      return (
        <div class={cls}>
          <span><b>{i.title}</b>{i.status && i.status !== "handled" && <> <span class={i.status === "failed" ? "bad" : ""}>{i.status.replaceAll("_", " ")}</span></>}{i.who && <> by {i.who}</>}{i.text && <span class="muted"> {i.text}</span>}</span>
          {time}
        </div>
      )
  }
}, (a, b) => a.item === b.item && a.turn === b.turn)

/** Long texts are folded: the stream stays readable, and light. */
function Text({ text, more }: { text: string; more?: boolean }) {
  const [whole, show] = useState(false)
  if (text.length <= 4000 || whole) return <div class="text">{text}{more && <span class="caret" aria-hidden="true" />}</div>
  return <div class="text">{text.slice(0, 4000)}… <button class="quiet" onClick={() => show(true)}>Show all ({Math.round(text.length / 1000)} kB)</button></div>
}


