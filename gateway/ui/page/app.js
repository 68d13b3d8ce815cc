"use strict";
// The page shows what the API answers to whoever is signed in, and asks again
// every two seconds while it is visible.
const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token") ?? "";
$("token").value = token;
$("who").addEventListener("submit", (e) => {
  e.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  refresh();
});

async function get(path) {
  const service = new URLSearchParams(location.search).get("service");
  const r = await fetch("/_electric/" + path + (service ? (path.includes("?") ? "&" : "?") + "service=" + encodeURIComponent(service) : ""),
    { headers: token ? { authorization: "Bearer " + token } : {} });
  if (!r.ok) {
    const problem = await r.json().catch(() => ({}));
    throw new Error(problem.detail ?? problem.title ?? "the gateway answered " + r.status);
  }
  return r.json();
}

function row(...cells) {
  const tr = document.createElement("tr");
  for (const c of cells) {
    const td = document.createElement("td");
    td.textContent = c.text ?? c;
    if (c.mark) td.className = c.mark;
    tr.append(td);
  }
  return tr;
}

const when = (t) => (t ? new Date(t).toLocaleTimeString() : "–");
const target = (p) => (p?.targets ?? []).map((t) => t.runnerId ?? t.url ?? t.type).join(", ") || "–";

async function refresh() {
  try {
    const [entities, runners] = await Promise.all([get("entities?limit=50"), get("runners")]);
    const shown = await Promise.all(entities.map((e) => get("entities" + e.url + "/display").catch(() => null)));
    $("entities").replaceChildren(...entities.map((e, i) => row(e.url,
      { text: shown[i]?.display || e.status, mark: ["failed", "delivery_failed"].includes(shown[i]?.code) ? "bad" : e.status === "running" ? "on" : "" },
      target(e.dispatch_policy), when(e.updated_at))));
    $("runners").replaceChildren(...runners.map((r) => row(r.label + " (" + r.id + ")",
      { text: r.admin_status === "disabled" ? "disabled" : r.liveness, mark: r.liveness === "online" ? "on" : "" },
      String(r.active_claims?.length ?? 0), when(r.last_seen_at))));
    $("no-entities").hidden = entities.length > 0;
    $("no-runners").hidden = runners.length > 0;
    $("state").textContent = "Up to date, " + new Date().toLocaleTimeString();
  } catch (e) {
    $("state").textContent = "Not up to date: " + e.message;
  }
}

setInterval(() => document.visibilityState === "visible" && refresh(), 2000);
refresh();
