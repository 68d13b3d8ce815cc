import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.CONFORMANCE_URL
if (!baseUrl) throw new Error("CONFORMANCE_URL must name the gateway under test")

runConformanceTests({
  baseUrl,
  longPollTimeoutMs: Number(process.env.CONFORMANCE_LONG_POLL_MS ?? 20000),
  subscriptions: true,
})
