// How the page speaks to the gateway: as whoever is signed in, with the
// gateway's own words for what went wrong.
import { signal } from "@preact/signals"

/** Who asks. It is kept for this tab only. */
export interface Credentials {
  /** Sent as a bearer token. */
  token: string
  /** Sent as electric-principal; only a gateway that runs without credentials heeds it. */
  principal: string
}

const read = (key: string) => sessionStorage.getItem(key) ?? ""

export const credentials = signal<Credentials>({ token: read("token"), principal: read("principal") })

/** What the gateway says about missing or refused credentials; empty while it takes what it gets. */
export const refused = signal("")

/** Whether the last request got an answer. The clients try again by themselves. */
export const reachable = signal(true)

/** The service that is looked at, from the page's own address. */
export const service = new URLSearchParams(location.search).get("service") ?? ""

/** How far the gateway's clock is ahead of this machine's, in milliseconds; 0 below what a Date header tells. */
let skew = 0

/** The time by the gateway's clock, in milliseconds since 1970. */
export const serverNow = () => Date.now() + skew

export function signIn(next: Credentials) {
  for (const [key, value] of Object.entries(next)) value ? sessionStorage.setItem(key, value) : sessionStorage.removeItem(key)
  refused.value = ""
  credentials.value = next
}

/** What every request carries. */
export function identity(): Record<string, string> {
  const { token, principal } = credentials.value
  return { ...(token && { authorization: `Bearer ${token}` }), ...(principal && { "electric-principal": principal }) }
}

/** A refusal or failure as the gateway words it (problem+json). */
export class Problem extends Error {
  constructor(readonly status: number, readonly code: string, readonly title: string, readonly detail: string) {
    super([detail || title, code && `(${code})`].filter(Boolean).join(" "))
  }
}

export const textOf = (e: unknown) => (e instanceof Error ? e.message : String(e))

/** The address of a path of the gateway's, below whatever prefix the page was reached by. */
export function address(path: string, query: Record<string, string | number | undefined> = {}): string {
  const url = new URL(root + path, location.origin)
  if (service) url.searchParams.set("service", service)
  for (const [k, v] of Object.entries(query)) if (v !== undefined) url.searchParams.set(k, String(v))
  return url.toString()
}

const root = location.pathname.replace(/\/_electric\/ui\/.*$/, "")

/** A path's segments as they are sent; an entity's url is a path already. */
export const seg = encodeURIComponent
export const entityPath = (url: string) => `/_electric/entities${url.split("/").map(seg).join("/")}`

async function problemOf(res: Response): Promise<Problem> {
  const body = await res.json().catch(() => ({}))
  const text = (v: unknown) => (typeof v === "string" ? v : "")
  return new Problem(res.status, text(body.error?.code) || text(body.code), text(body.title) || `The gateway answered ${res.status}.`, text(body.detail) || text(body.error?.message))
}

/** Keeps an eye on the clock, and on credentials that are missing or no longer good. */
export const watchedFetch: typeof fetch = async (input, init) => {
  const who = credentials.value
  const res = await fetch(input, init).catch((e) => {
    if (!init?.signal?.aborted) reachable.value = false
    throw e
  })
  // A proxy's word that nobody is behind it counts like no answer.
  reachable.value = ![502, 503, 504].includes(res.status)
  const date = Date.parse(res.headers.get("date") ?? "")
  if (date) {
    const ahead = date + 500 - Date.now()
    skew = Math.abs(ahead) < 1500 ? 0 : ahead
  }
  if (res.status === 401 && !refused.value) {
    const p = await problemOf(res.clone())
    if (who !== credentials.value) return res // somebody else's by now
    // A refusal of rights is a 401 too on this wire; rows are refused to nobody who is signed in.
    if (p.code === "UNAUTHENTICATED" || res.url.includes("/v1/shape?")) refused.value ||= credentials.value.token ? p.message : "This gateway asks who you are."
  }
  return res
}

/** One call of the API. Throws a Problem, or an Error when the gateway is not reached. */
export async function call<T>(method: string, path: string, body?: unknown, query?: Record<string, string | number | undefined>): Promise<T> {
  let res: Response
  try {
    res = await watchedFetch(address(path, query), {
      method,
      headers: { ...identity(), ...(body !== undefined && { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
  } catch {
    throw new Error("The gateway cannot be reached.")
  }
  if (!res.ok) throw await problemOf(res)
  const text = await res.text()
  return (text ? JSON.parse(text) : undefined) as T
}

export const get = <T,>(path: string, query?: Record<string, string | number | undefined>) => call<T>("GET", path, undefined, query)
