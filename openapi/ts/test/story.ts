// The whole story through the TypeScript client, against the server in argv:
// a phone spawns an entity and sends to it, a laptop is woken, claims it, works,
// acks and releases. Ends with status 1 when anything is not as it should be.

import assert from "node:assert/strict";
import { ok, rouse, RouseError, type Schemas } from "../src/index.js";

const baseUrl = process.argv[2];
if (!baseUrl) throw new Error("usage: story.js URL");

const phone = rouse({ baseUrl, principal: "user:kyle" });
const laptop = rouse({ baseUrl, principal: "user:kyle" });
const stranger = rouse({ baseUrl, principal: "user:mallory" });
const entity = { type: "ts-session", id: "team/a/7" };
const runner = "ts-laptop";

async function refused(code: string, status: number, call: Promise<unknown>): Promise<void> {
  await assert.rejects(call, (e: unknown) => {
    assert.ok(e instanceof RouseError, String(e));
    assert.equal(e.code, code);
    assert.equal(e.status, status);
    return true;
  });
}

await ok(phone.POST("/_electric/entity-types", { body: { name: entity.type, description: "A coding session." } }));
await ok(laptop.POST("/_electric/runners", { body: { id: runner, label: "Kyle's laptop" } }));
await refused("RUNNER_FORBIDDEN", 403, ok(stranger.GET("/_electric/runners/{id}", { params: { path: { id: runner } } })));

const spawned = await ok(
  phone.PUT("/_electric/entities/{type}/{id}", {
    params: { path: entity },
    body: { args: { repo: "rouse" }, dispatch_policy: { targets: [{ type: "runner", runnerId: runner }] } },
  }),
);
assert.equal(spawned.url, "/ts-session/team/a/7");
assert.equal(typeof spawned.txid, "number");

const sent = await ok(
  phone.POST("/_electric/entities/{type}/{id}/send", {
    params: { path: entity, header: { "Idempotency-Key": "first" } },
    body: { payload: { text: "fix the build" } },
  }),
);
assert.ok(sent); // only a delayed send answers nothing

// The laptop tails its wake stream.
type WakeEntry = { type: string; wakeId: string; epoch: number; claimToken: string };
async function wake(after: string): Promise<{ entry: WakeEntry; next: string }> {
  for (let offset = after; ; ) {
    const { data, response } = await laptop.GET("/v1/stream/{path}", {
      params: { path: { path: `runners/${runner}/wake` }, query: { offset, live: "long-poll" } },
    });
    assert.ok(response.status === 200 || response.status === 204, `status ${response.status}`);
    const next = response.headers.get("stream-next-offset") ?? offset;
    const entries = (data ?? []) as unknown as WakeEntry[];
    const entry = entries.find((e) => e.type === "wake");
    if (entry) return { entry, next };
    offset = next;
  }
}

const first = await wake("-1");
assert.equal(first.entry.epoch, 1);
assert.match(first.entry.claimToken, /^rouse_ct_/);

const path = { id: runner };
async function claimFor(entry: WakeEntry, claimId?: string): Promise<Schemas["WakeNotification"]> {
  const body = claimId ? { ...entry, claimId } : { ...entry };
  const got = await ok(laptop.POST("/_electric/runners/{id}/claim", { params: { path }, body }));
  assert.ok(got, "there was nothing to claim");
  return got;
}
const claim = await claimFor(first.entry, "attempt-1");
assert.equal(claim.entity?.url, spawned.url);
await refused("ALREADY_CLAIMED", 409, claimFor(first.entry));

const wakeId = claim.wakeId!;
const held = { "Electric-Claim-Token": claim.claimToken! };
const confirmed = await ok(
  laptop.POST("/_electric/wake-callbacks/{wakeId}", { params: { path: { wakeId }, header: held }, body: { epoch: 1, wakeId } }),
);
assert.ok(confirmed.ok && confirmed.writeToken);

// It reads what is unread, answers, acks and releases.
const main = `${spawned.url.slice(1)}/main`;
const unread = claim.streams![0]!;
const read = await laptop.GET("/v1/stream/{path}", {
  params: { path: { path: main }, query: { offset: unread.ackedOffset ?? "-1" } },
});
const rows = read.data as unknown as { type: string; key: string; headers: { offset: string } }[];
assert.deepEqual(rows.map((r) => r.type), ["inbox"]);
assert.equal(rows[0]!.key, sent.key);
assert.equal(rows[0]!.headers.offset, sent.offset);

const append = (token: string) =>
  laptop.POST("/v1/stream/{path}", {
    params: { path: { path: main }, header: { "Electric-Claim-Token": token } },
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ headers: { operation: "insert" }, type: "text", key: "t-1", value: { text: "done" } }),
    bodySerializer: (body) => body as string,
  });
await refused("UNAUTHORIZED", 401, ok(append("rouse_wt_junk")));
await ok(append(confirmed.writeToken!));

const beat = await ok(laptop.POST("/_electric/wake-callbacks/{wakeId}", { params: { path: { wakeId }, header: held }, body: { epoch: 1 } }));
assert.ok(beat.ok && beat.lease_ms! > 0);
const released = await ok(
  laptop.POST("/_electric/wake-callbacks/{wakeId}", {
    params: { path: { wakeId }, header: held },
    body: { epoch: 1, done: true, acks: [{ path: `/${main}`, offset: sent.offset }] },
  }),
);
assert.equal(released.next_wake, false);
await refused("UNAUTHORIZED", 401, ok(append(confirmed.writeToken!)));

const display = await ok(phone.GET("/_electric/entities/{type}/{id}/display", { params: { path: entity } }));
assert.equal(display.display, "Waiting for input");

// A second message is a second wake with a higher epoch.
await ok(phone.POST("/_electric/entities/{type}/{id}/send", { params: { path: entity }, body: { payload: "again" } }));
const second = await wake(first.next);
assert.equal(second.entry.epoch, 2);

await ok(phone.DELETE("/_electric/entities/{type}/{id}", { params: { path: entity } }));
const gone = await claimFor(second.entry);
assert.equal(gone.done, true);
console.log("the story is told");
