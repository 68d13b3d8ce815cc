// Small words: times, durations, names of targets.
import { millis, type Target, type Time } from "./rows"

export function ago(t: Time, now: number): string {
  const at = millis(t)
  if (Number.isNaN(at)) return "–"
  const s = Math.round((now - at) / 1000)
  if (s < 3) return "now"
  return s < 60 ? `${s} s ago` : s < 3600 ? `${Math.floor(s / 60)} min ago` : s < 86400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86400)} d ago`
}

/** A length of time in milliseconds. */
export function span(ms: number): string {
  if (Number.isNaN(ms)) return "–"
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" })
const dayFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })

export function clock(t: Time): string {
  const at = millis(t)
  return Number.isNaN(at) ? "–" : clockFormat.format(at)
}

export function full(t: Time): string {
  const at = millis(t)
  return Number.isNaN(at) ? "" : dayFormat.format(at)
}

export function targetName(t: Target | null | undefined, label?: (runnerId: string) => string | undefined): string {
  if (!t) return "none"
  if (t.type === "runner") return (t.runnerId && label?.(t.runnerId)) || t.runnerId || "runner"
  if (t.type === "worker-pool") return t.workerPoolId ?? "pool"
  if (t.url) {
    try { return new URL(t.url).host } catch { return t.url }
  }
  return t.type
}

/** What moves a wake on from a target, as a sentence's end. */
export function whenWords(t: Target): string {
  const w = t.when
  if (!w) return ""
  return [w.offline && "it is offline", w.full && "it is full", w.failed && "delivery fails", w.unclaimedAfterMs && `nobody takes it in ${span(w.unclaimedAfterMs)}`].filter(Boolean).join(", or ")
}
