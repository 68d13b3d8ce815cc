// What the tests share: where the gateway is, who calls, and waiting.
import assert from "node:assert/strict"

export const base = process.env.ROUSE_URL
const control = process.env.ROUSE_CONTROL
export const bound = 30_000

// restart ends the gateway behind `base` and starts another on the same database.
export async function restart() {
  const res = await fetch(`${control}/restart`, { method: "POST" })
  assert.equal(res.status, 204)
}

// as calls the control plane as a principal.
export const as = (principal) => async (method, path, body) => {
  const res = await fetch(base + path, {
    method,
    headers: { "electric-principal": principal, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await res.text()
  assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`)
  return text ? JSON.parse(text) : undefined
}

// until polls for what must come true.
export async function until(what, ok) {
  const deadline = Date.now() + bound
  while (!(await ok())) {
    assert.ok(Date.now() < deadline, `never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
