// The frame around the views, and which view is looked at.
import { render } from "preact"
import { computed, effect, signal } from "@preact/signals"
import { credentials, refused, service, signIn } from "./api"
import { begin, connection, parked } from "./store"
import { Dialogs, Toasts } from "./dialogs"
import { Icon, type IconName } from "./bits"
import { Entities } from "./views/entities"
import { Entity } from "./views/entity"
import { Runners } from "./views/runners"
import { Parked } from "./views/parked"
import { System } from "./views/system"
import { SignIn } from "./views/signin"

const hash = signal(location.hash)
addEventListener("hashchange", () => { hash.value = location.hash })

const route = computed(() => {
  const path = hash.value.replace(/^#/, "") || "/entities"
  const [, view, ...rest] = path.split("/")
  return { view, rest: rest.map((s) => { try { return decodeURIComponent(s) } catch { return s } }) }
})

const sections: { view: string; title: string; icon: IconName }[] = [
  { view: "entities", title: "Entities", icon: "entities" },
  { view: "runners", title: "Runners", icon: "runners" },
  { view: "parked", title: "Parked", icon: "parked" },
  { view: "system", title: "System", icon: "system" },
]

function View() {
  const { view, rest } = route.value
  switch (view) {
    case "runners": return <Runners />
    case "parked": return <Parked />
    case "system": return <System />
    case "entity": return <Entity key={rest.join("/")} url={`/${rest.join("/")}`} />
    default: return <Entities />
  }
}

function Connection() {
  const { state, text } = connection.value
  const words = { live: "Live", loading: "Connecting…", broken: "Not up to date" }[state]
  return <p class={`connection ${state}`} role="status" title={text}><span class="pulse" aria-hidden="true" />{words}{state === "broken" && <span class="sr">: {text}</span>}</p>
}

function Frame() {
  const at = route.value.view === "entity" ? "entities" : sections.some((s) => s.view === route.value.view) ? route.value.view : "entities"
  const { token, principal } = credentials.value
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus() }}>Skip to the content</a>
      <header class="rail">
        <a class="brand" href="#/entities" aria-label="Rouse"><img src="icon.svg" width="28" height="28" alt="" /><span>Rouse</span></a>
        <nav aria-label="Sections">
          {sections.map((s) => (
            <a key={s.view} href={`#/${s.view}`} aria-current={at === s.view ? "page" : undefined}><Icon name={s.icon} /><span>{s.title}</span>{s.view === "parked" && parked.value.length > 0 && <b class="badge bad">{parked.value.length}</b>}</a>
          ))}
        </nav>
        <div class="foot">
          <Connection />
          {service && <p class="who" title="Service">service {service}</p>}
          <button class="quiet who" onClick={() => { refused.value = " " }} title="Who the page asks as">
            <Icon name="person" /><span>{token ? "Signed in" : principal || "Sign in"}</span>
          </button>
          {(token || principal) && <button class="quiet who" onClick={() => { signIn({ token: "", principal: "" }) }}><Icon name="out" /><span>Sign out</span></button>}
        </div>
      </header>
      <main id="main" tabIndex={-1}><View key={`${token} ${principal}`} /></main>
    </div>
  )
}

function App() {
  return <>{refused.value ? <SignIn /> : <Frame />}<Dialogs /><Toasts /></>
}

effect(() => {
  const { view, rest } = route.value
  document.title = view === "entity" ? `${rest.join("/")} · Rouse` : `${sections.find((s) => s.view === view)?.title ?? "Entities"} · Rouse`
})

begin()
render(<App />, document.getElementById("app")!)
