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
	const limits, trim = `{"max_messages":100}`, `{"before":"now"}`
	keptByGateway := no(403, "PATH_RESERVED")
	ofKeptByGateway := guardedStream.with(users(keptByGateway))
	return []row{
		{"getStreamRetention", "plain", plainStream, shows(200), plain("get", "")},
		{"getStreamRetention", "an entity's", guardedStream, shows(200), main("getKept", "")},
		{"getStreamRetention", "a runner's wakes", guardedStream, shows(200), wakes("getKept", "")},
		{"putStreamRetention", "plain", plainStream, shows(200), plain("put", limits)},
		{"putStreamRetention", "an entity's", guardedStream, shows(200), main("putKept", limits)},
		{"putStreamRetention", "a runner's wakes", ofKeptByGateway, keptByGateway, wakes("putKept", limits)},
		{"deleteStreamRetention", "plain", plainStream.with(users(shows(204))), shows(204), plain("delete", "")},
		{"deleteStreamRetention", "an entity's", guardedStream, shows(204), main("deleteKept", "")},
		{"trimStream", "plain", plainStream, shows(200), plain("trim", trim)},
		{"trimStream", "an entity's", guardedStream, shows(200), main("trimKept", trim)},
		{"trimStream", "a runner's wakes", ofKeptByGateway, keptByGateway, wakes("trimKept", trim)},
		{"getTypeRetention", "", ofType, shows(200), typeAsk("getTypeRetention", "")},
		{"putTypeRetention", "", ofType, shows(200), typeAsk("putTypeRetention", limits)},
		{"deleteTypeRetention", "", ofType, shows(204), typeAsk("deleteTypeRetention", "")},
	}
}
