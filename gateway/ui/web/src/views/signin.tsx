// Signing in: the token that the gateway's auth hooks take.
import { credentials, refused, signIn } from "../api"

export function SignIn() {
  const { principal } = credentials.value
  const submit = (e: SubmitEvent) => {
    e.preventDefault()
    const data = new FormData(e.target as HTMLFormElement)
    const next = { token: String(data.get("token") ?? "").trim(), principal: String(data.get("principal") ?? "").trim() }
    // A header holds no other characters; the browser would not send it, as if nobody answered.
    if (/[^\x21-\x7e]/.test(next.token)) refused.value = "That is no token: it holds a space, or a character that no token has."
    else if (/[^\x20-\x7e]/.test(next.principal)) refused.value = "A principal is made of ASCII characters, such as user:kyle."
    else signIn(next)
  }
  return (
    <main class="signin" id="main">
      <form onSubmit={submit} aria-label="Sign in">
        <img src="icon.svg" width="56" height="56" alt="" />
        <h1>Rouse</h1>
        {refused.value.trim() && <p class="error" role="alert">{refused.value}</p>}
        <label>Token<input name="token" type="password" autocomplete="off" placeholder="rouse_…, or your identity provider's" autofocus /></label>
        <details open={!!principal}>
          <summary>Act as (a gateway in development)</summary>
          <label>Principal<input name="principal" defaultValue={principal} placeholder="user:kyle" autocomplete="off" /></label>
        </details>
        <div class="actions">
          {refused.value === " " && <button type="button" class="quiet" onClick={() => { refused.value = ""; credentials.value = { ...credentials.value } }}>Back</button>}
          <button class="primary">Sign in</button>
        </div>
        <p class="hint">The token stays in this tab and goes to this gateway only.</p>
      </form>
    </main>
  )
}
