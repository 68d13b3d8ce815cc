package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// figure is one thing that is measured.
type figure struct {
	key, id, title, unit string
	// aim is what we hold ourselves to, in words; met decides it from the medians, where they are known. Other figures
	// can be asked for by key.
	aim string
	met func(v values, other func(key string) values) (met, known bool)
}

// atMost and atLeast compare rouse with a number, ratio with another subject of the same run.
func atMost(limit float64) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) { return v[rouse] <= limit, v.is(rouse) }
}

func atLeast(limit float64) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) { return v[rouse] >= limit, v.is(rouse) }
}

func notOver(subject string) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) {
		return v[rouse] <= v[subject], v.is(rouse, subject)
	}
}

func notUnder(subject string) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) {
		return v[rouse] >= v[subject], v.is(rouse, subject)
	}
}

// flat compares the sizes of a database: the largest must not be worse than the smallest by more than the tolerance.
func flat(tolerance float64, lowerIsBetter bool) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) {
		sizes := slices.SortedFunc(maps.Keys(v), func(a, b string) int { return cmp.Compare(size(a), size(b)) })
		if len(sizes) < 2 {
			return false, false
		}
		small, large := v[sizes[0]], v[sizes[len(sizes)-1]]
		if lowerIsBetter {
			small, large = large, small
		}
		return large >= small*(1-tolerance), true
	}
}

// size reads what short wrote.
func size(s string) int {
	factor := 1
	if rest, ok := strings.CutSuffix(s, "M"); ok {
		s, factor = rest, 1_000_000
	} else if rest, ok := strings.CutSuffix(s, "k"); ok {
		s, factor = rest, 1000
	}
	n, _ := strconv.Atoi(s)
	return n * factor
}

// withinIdle compares what goes on beside the clean-up with the same alone.
func withinIdle(factor float64) func(values, func(string) values) (bool, bool) {
	return func(v values, _ func(string) values) (bool, bool) {
		return v[compacting] <= factor*v[idle], v.is(compacting, idle)
	}
}

func most(v values) float64 {
	m := 0.0
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

// catalogue lists the figures in the order of the table.
func catalogue() []figure {
	return []figure{
		{"b1.many", "B1", "appends/s, many connections", "/s", "≥ 12× npm file, ≥ 1× npm memory", func(v values, _ func(string) values) (bool, bool) {
			return v[rouse] >= 12*v[npmFile] && v[rouse] >= v[npmMem], v.is(rouse, npmFile, npmMem)
		}},
		{"b1.many.p50", "B1", "… p50", "ms", "", nil},
		{"b1.many.p99", "B1", "… p99", "ms", "", nil},
		{"b1.many.json", "B1", "appends/s, JSON, many connections", "/s", "", nil},
		{"b1.wide", "B1", "appends/s, 4× the connections", "/s", "", nil},
		{"b1.hot", "B1", "appends/s, all to one stream", "/s", "", nil},
		{"b1.one", "B1", "appends/s, 1 connection", "/s", "", nil},
		{"b1.one.p50", "B1", "append p50, 1 connection", "ms", "≤ npm file", notOver(npmFile)},
		{"b1.one.p50.json", "B1", "append p50, JSON, 1 connection", "ms", "", nil},
		{"b1.generator", "B1", "load generator", "cores", "", nil},
		{"b2.sse.p50", "B2", "append → SSE p50, 100/s", "ms", "≤ 1.0", atMost(1)},
		{"b2.sse.p99", "B2", "append → SSE p99", "ms", "≤ npm file", notOver(npmFile)},
		{"b2.poll.p50", "B2", "append → long-poll p50, 100/s", "ms", "≤ 1.0", atMost(1)},
		{"b2.poll.p99", "B2", "append → long-poll p99", "ms", "≤ npm file", notOver(npmFile)},
		{"b2.sse.two.p50", "B2", "append → SSE at another gateway p50", "ms", "≤ 1.0", atMost(1)},
		{"b2.sse.two.p99", "B2", "append → SSE at another gateway p99", "ms", "≤ npm file (one server)", func(v values, other func(string) values) (bool, bool) {
			peer := other("b2.sse.p99")
			return v[rouse] <= peer[npmFile], v.is(rouse) && peer.is(npmFile)
		}},
		{"b2.poll.two.p50", "B2", "append → long-poll at another gateway p50", "ms", "≤ 1.0", atMost(1)},
		{"b2.poll.two.p99", "B2", "append → long-poll at another gateway p99", "ms", "≤ npm file (one server)", func(v values, other func(string) values) (bool, bool) {
			peer := other("b2.poll.p99")
			return v[rouse] <= peer[npmFile], v.is(rouse) && peer.is(npmFile)
		}},

		{"b3.few.p50", "B3", "500 SSE readers, 20/s: p50", "ms", "≤ 10", atMost(10)},
		{"b3.few.p99", "B3", "500 SSE readers: p99", "ms", "", nil},
		{"b3.few.cores", "B3", "500 SSE readers: server", "cores", "≤ 0.5", atMost(0.5)},
		{"b3.few.missing", "B3", "500 SSE readers: missing", "messages", "0", atMost(0)},
		{"b3.many.p50", "B3", "many SSE readers: p50", "ms", "", nil},
		{"b3.many.p99", "B3", "many SSE readers: p99", "ms", "", nil},
		{"b3.many.cores", "B3", "many SSE readers: server", "cores", "", nil},
		{"b3.many.missing", "B3", "many SSE readers: missing", "messages", "0", atMost(0)},
		{"b3.many.memory", "B3", "many SSE readers: memory a reader", "KiB", "≤ 40", atMost(40)},
		{"b3.beside.p99", "B3", "another stream's p99 meanwhile", "ms", "≤ 2× alone", func(v values, _ func(string) values) (bool, bool) {
			return v[rouse] <= 2*v["alone"], v.is(rouse, "alone")
		}},

		{"b4.large", "B4", "catch-up, 4 readers, 64 KiB messages", "MB/s", "≥ npm file", notUnder(npmFile)},
		{"b4.large.apart", "B4", "… each its own stream (not cached)", "MB/s", "", nil},
		{"b4.large.rss", "B4", "… gateway's memory", "MiB", "≤ 300", atMost(300)},
		{"b4.small", "B4", "catch-up, 4 readers, 256 B messages", "MB/s", "≥ npm file", notUnder(npmFile)},
		{"b4.small.apart", "B4", "… each its own stream", "MB/s", "", nil},
		{"b4.small.rss", "B4", "… gateway's memory", "MiB", "≤ 300", atMost(300)},

		{"b5.claimed.p50", "B5", "send → claimed by the runner p50, 100/s, 1 000 entities", "ms", "≤ 4", atMost(4)},
		{"b5.claimed.p99", "B5", "send → claimed p99", "ms", "≤ 15", atMost(15)},
		{"b5.cycles", "B5", "wake cycles/s over HTTP (send, wake, claim, ack, release)", "/s", "≥ 5 000", atLeast(5000)},
		{"b5.cycles.p50", "B5", "… send → claimed p50", "ms", "", nil},
		{"b5.cycles.p99", "B5", "… send → claimed p99", "ms", "", nil},
		{"b5.cycles.gateway", "B5", "… CPU of the gateway a cycle", "µs", "", nil},
		{"b5.cycles.postgres", "B5", "… CPU of Postgres a cycle", "µs", "", nil},
		{"b5.cycles.generator", "B5", "… load generator", "cores", "", nil},
		{"b5.sql", "B5", "the same cycles in SQL batches", "/s", "≥ River's jobs/s", notUnder(river)},

		{"b6.appends", "B6", "appends/s by number of entities", "/s", "flat within 15 %", flat(0.15, false)},
		{"b6.claimed.p50", "B6", "send → claimed p50 by number of entities", "ms", "flat within 15 %", flat(0.15, true)},
		{"b6.cycles", "B6", "wake cycles/s by number of entities", "/s", "flat within 15 %", flat(0.15, false)},
		{"b6.scan", "B6", "recovery scan by number of entities", "ms", "≤ 200", func(v values, _ func(string) values) (bool, bool) { return most(v) <= 200, true }},
		{"b6.rss", "B6", "gateway's memory by number of entities", "MiB", "≤ 300", func(v values, _ func(string) values) (bool, bool) { return most(v) <= 300, true }},

		{"b7.serve", "B7", "serve: start to ready, migrated database", "ms", "≤ 300", atMost(300)},
		{"b7.dev", "B7", "dev: nothing to ready", "ms", "≤ 5 000", atMost(5000)},

		{"b8.server", "B8", "CPU of the server an append, many connections", "µs", "≤ 60", atMost(60)},
		{"b8.server.json", "B8", "… JSON", "µs", "", nil},
		{"b8.postgres", "B8", "CPU of Postgres an append", "µs", "≤ 60", atMost(60)},
		{"b8.postgres.json", "B8", "… JSON", "µs", "", nil},

		{"b9.made.p50", "B9", "making a stream p50 by number of patterns that cannot match", "ms", "≤ 0.5 more", func(v values, _ func(string) values) (bool, bool) {
			return v[patternCount(10_000)] <= v[patternCount(0)]+0.5, v.is(patternCount(0), patternCount(10_000))
		}},

		{"b10.append.p50", "B10", "append p50 while wake entries are deleted, 400/s", "ms", "", nil},
		{"b10.append.p99", "B10", "… p99", "ms", "≤ 1.5× idle", withinIdle(1.5)},
		{"b10.append.best", "B10", "… p99 of the quietest stretch: what else the machine does only adds", "ms", "≤ 1.5× idle", withinIdle(1.5)},
		{"b10.tail.p99", "B10", "append → SSE p99 meanwhile", "ms", "", nil},
		{"b10.rate", "B10", "wake entries deleted", "/s", "", nil},
		{"b10.dead", "B10", "dead rows", "rows", "", nil},
		{"b10.vacuum", "B10", "until autovacuum has dealt with them", "s", "", nil},
		{"b10.size", "B10", "table and index, filled", "MiB", "within 15 % of the first time", func(v values, _ func(string) values) (bool, bool) {
			return v["written again"] <= 1.15*v["first time"], v.is("first time", "written again")
		}},
	}
}
