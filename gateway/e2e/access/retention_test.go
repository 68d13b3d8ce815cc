package access

func retentionRows() []row {
	plain := func(name, body string) func(*world) ask {
		return func(w *world) ask {
			return ask{path: map[string]string{"path": w.stream("kept-" + name + "-" + hidden)}, body: body}
		}
	}
	main := func(id, body string) func(*world) ask {
		return func(w *world) ask {
			return ask{path: map[string]string{"path": owners + "-task/" + w.entity(id) + "/main"}, body: body}
		}
	}
	wakes := func(name, body string) func(*world) ask {
		return func(w *world) ask {
			return ask{path: map[string]string{"path": "runners/" + w.runner(owners+"-"+name) + "/wake"}, body: body}
		}
	}
	shared := func(name, body string) func(*world) ask {
		return func(w *world) ask { return ask{path: map[string]string{"path": w.shared(name)}, body: body} }
	}
	// What another service has no shared state of, it has no stream of.
	keptShared := ofShared.with(kind{elsewhere: no(404, "STREAM_NOT_FOUND")})
	const limits, trim = `{"max_messages":100}`, `{"before":"now"}`
	keptByGateway := no(403, "PATH_RESERVED")
	ofKeptByGateway := guardedStream.with(users(keptByGateway))
	return []row{
		{"getStreamRetention", "plain", plainStream, shows(200), plain("get", "")},
		{"getStreamRetention", "an entity's", guardedStream, shows(200), main("getKept", "")},
		{"getStreamRetention", "a shared state", keptShared, shows(200), shared("getKeptShared", "")},
		{"getStreamRetention", "a runner's wakes", guardedStream, shows(200), wakes("getKept", "")},
		{"putStreamRetention", "plain", plainStream, shows(200), plain("put", limits)},
		{"putStreamRetention", "an entity's", guardedStream, shows(200), main("putKept", limits)},
		{"putStreamRetention", "a shared state", keptShared, shows(200), shared("putKeptShared", limits)},
		{"putStreamRetention", "a runner's wakes", ofKeptByGateway, keptByGateway, wakes("putKept", limits)},
		{"deleteStreamRetention", "plain", plainStream.with(users(shows(204))), shows(204), plain("delete", "")},
		{"deleteStreamRetention", "an entity's", guardedStream, shows(204), main("deleteKept", "")},
		{"deleteStreamRetention", "a shared state", keptShared, shows(204), shared("deleteKeptShared", "")},
		{"trimStream", "plain", plainStream, shows(200), plain("trim", trim)},
		{"trimStream", "an entity's", guardedStream, shows(200), main("trimKept", trim)},
		{"trimStream", "a shared state", keptShared, shows(200), shared("trimKeptShared", trim)},
		{"trimStream", "a runner's wakes", ofKeptByGateway, keptByGateway, wakes("trimKept", trim)},
		{"getTypeRetention", "", ofType, shows(200), typeAsk("getTypeRetention", "")},
		{"putTypeRetention", "", ofType, shows(200), typeAsk("putTypeRetention", limits)},
		{"deleteTypeRetention", "", ofType, shows(204), typeAsk("deleteTypeRetention", "")},
	}
}
