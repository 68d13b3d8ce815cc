package access

import "fmt"

func subscriptionRows() []row {
	const pull = `{"type":"pull-wake","pattern":"%s/*","wake_stream":"wakes-%s"}`
	turn := func(id, body string) func(*world) ask {
		return func(w *world) ask {
			l := w.taken(owners + "-" + id)
			return ask{path: map[string]string{"id": owners + "-" + id}, body: body, tokens: &tokens{l.Token, l.overClaim, w.foreign.ClaimToken}}
		}
	}
	return []row{
		{"listSubscriptions", "", ofEverybody, shows(200), plainly("", "")},
		{"putSubscription", "", ofEverybody.with(users(hides(201))).with(kind{elsewhere: hides(201)}), shows(201), func(*world) ask {
			return ask{path: map[string]string{"id": "sub-{column}"}, body: fmt.Sprintf(pull, "no-jobs", "{column}")}
		}},
		{"putSubscription", "one that is there", ofSubscription.with(kind{elsewhere: shows(201)}), shows(200), func(w *world) ask {
			w.do("PUT", "/__ds/subscriptions/"+owners+"-there", fmt.Sprintf(pull, "no-jobs", "there"))
			return ask{path: map[string]string{"id": owners + "-there"}, body: fmt.Sprintf(pull, "no-jobs", "there")}
		}},
		{"putSubscription", "an entity's stream", ofSubscription.with(kind{elsewhere: shows(201)}), shows(201), func(w *world) ask {
			return ask{path: map[string]string{"id": "on-{column}"}, body: fmt.Sprintf(`{"type":"pull-wake","streams":["%s-task/%s/main"],"wake_stream":"wakes-on-{column}"}`, owners, w.entity("subscribed"))}
		}},
		{"getSubscription", "", ofSubscription, shows(200), subscriptionAsk("getSubscription", "")},
		// What is not there is deleted already.
		{"deleteSubscription", "", ofSubscription.with(kind{elsewhere: shows(204)}), shows(204), subscriptionAsk("deleteSubscription", "")},
		{"addSubscriptionStreams", "", ofSubscription, shows(204), subscriptionAsk("addSubscriptionStreams", `{"streams":["one-more"]}`)},
		{"removeSubscriptionStream", "", ofSubscription, shows(204), func(w *world) ask {
			id := w.subscription(owners + "-removeSubscriptionStream")
			w.do("POST", "/__ds/subscriptions/"+id+"/streams", `{"streams":["one/more"]}`)
			return ask{path: map[string]string{"id": id, "path": "one/more"}}
		}},
		{"listSubscriptionWakes", "", ofSubscription, shows(200), subscriptionAsk("listSubscriptionWakes", "")},
		{"claimSubscription", "", ofSubscription, shows(200), subscriptionAsk("claimSubscription", `{"worker":"w"}`)},
		{"ackSubscription", "", byTurn, shows(200), turn("ackSubscription", `{}`)},
		{"releaseSubscription", "", byTurn, shows(204), turn("releaseSubscription", `{}`)},
		// One that is not there, or of another kind, looks no different to strangers.
		{"ackSubscription", "what is not there", byTurn.with(kind{expired: no(404, "SUBSCRIPTION_NOT_FOUND"), another: no(404, "SUBSCRIPTION_NOT_FOUND")}), no(404, "SUBSCRIPTION_NOT_FOUND"), func(w *world) ask {
			return ask{path: map[string]string{"id": "not-there"}, body: `{}`, tokens: &tokens{w.foreign.ClaimToken, w.foreign.ClaimToken, w.foreign.ClaimToken}}
		}},
		{"releaseSubscription", "a webhook's", byTurn.with(kind{expired: no(400, "INVALID_REQUEST"), another: no(400, "INVALID_REQUEST")}), no(400, "INVALID_REQUEST"), func(w *world) ask {
			w.do("PUT", "/__ds/subscriptions/hook", fmt.Sprintf(`{"type":"webhook","pattern":"no-jobs/*","webhook":{"url":%q}}`, w.hook.URL))
			return ask{path: map[string]string{"id": "hook"}, body: `{}`, tokens: &tokens{w.foreign.ClaimToken, w.foreign.ClaimToken, w.foreign.ClaimToken}}
		}},
		{"subscriptionCallback", "", byTurn, shows(200), func(w *world) ask {
			id := owners + "-subscriptionCallback"
			now, over := w.hooked(id)
			return ask{path: map[string]string{"id": id}, body: `{"done":true}`, tokens: &tokens{now.Token, over, w.foreign.ClaimToken}}
		}},
	}
}

// shared makes a shared state that an entity of its own uses.
func (w *world) shared(id string) string {
	w.Helper()
	path := "_electric/shared-state/" + owners + "-" + id
	w.do("PUT", "/"+path, "", "Content-Type", "application/json", "Electric-Owner-Entity", "/"+owners+"-task/"+w.entity(id))
	return path
}

// ofShared is an operation on one shared state.
var ofShared = guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(401, "UNAUTHORIZED")})

// streamRows are the operations on streams, for each kind of stream that there
// is.
func streamRows() []row {
	main := func(id string) string { return owners + "-task/" + id + "/main" }
	of := func(path func(*world) string, query, body string, header ...string) func(*world) ask {
		return func(w *world) ask {
			return ask{path: map[string]string{"path": path(w)}, query: query, body: body, header: header}
		}
	}
	plain := func(name string) func(*world) string {
		return func(w *world) string { return w.stream("plain-" + name + "-" + hidden) }
	}
	mains := func(id string) func(*world) string {
		return func(w *world) string { return main(w.entity(id)) }
	}
	wakes := func(id string) func(*world) string {
		return func(w *world) string { return "runners/" + w.runner(owners+"-"+id) + "/wake" }
	}
	files := func(id string) func(*world) string {
		return func(w *world) string { return owners + "-task/" + w.attached(id) + "/attachments/a" }
	}
	shared := func(id string) func(*world) string {
		return func(w *world) string { return w.shared(id) }
	}
	errors := func(id string) func(*world) string {
		return func(w *world) string {
			l := w.held(id)
			path := owners + "-task/" + id + "/error"
			must(w.T, 204, w.client, "POST", w.url+"/"+path, `{"type":"error","key":"e","value":{"message":"`+hidden+`"},"headers":{"operation":"insert"}}`,
				"Content-Type", "application/json", "Electric-Claim-Token", l.WriteToken)
			return path
		}
	}
	members := func(w *world) string {
		var m struct{ StreamURL string }
		w.on(w.kyle, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"no":"such"}}`, &m)
		return m.StreamURL[1:]
	}
	writing := func(id, stream string) func(*world) ask {
		return func(w *world) ask {
			l := w.held(id)
			return ask{path: map[string]string{"path": owners + "-task/" + id + "/" + stream}, body: row1, header: isJSON, tokens: &tokens{l.WriteToken, l.overWrite, w.foreign.WriteToken}}
		}
	}
	ofWakes := guardedStream.with(users(no(403, "RUNNER_FORBIDDEN")))
	reserved := no(403, "PATH_RESERVED")
	return []row{
		{"readStream", "plain", plainStream, shows(200), of(plain("read"), "", "")},
		{"readStream", "an entity's", guardedStream, shows(200), of(mains("readMain"), "", "")},
		{"readStream", "an entity's, waiting", guardedStream, shows(200), of(mains("readLive"), "offset=-1&live=long-poll", "")},
		{"readStream", "an entity's, as events", guardedStream, shows(200), of(mains("readEvents"), "offset=-1&live=sse", "")},
		{"readStream", "an entity's, behind its end", guardedStream, no(400, "OFFSET_INVALID"), of(mains("readBehind"), "offset=0000000000000000_0000000000999999", "")},
		{"readStream", "an entity's errors", guardedStream, shows(200), of(errors("readError"), "", "")},
		{"readStream", "an entity's file", guardedStream, shows(200), of(files("readFile"), "", "")},
		{"readStream", "a runner's wakes", ofWakes, shows(200), of(wakes("readWakes"), "", "")},
		{"readStream", "a shared state", ofShared, shows(200), of(shared("readShared"), "", "")},
		{"readStream", "the members", guardedStream, shows(200), of(members, "", "")},
		{"headStream", "plain", plainStream, shows(200), of(plain("head"), "", "")},
		{"headStream", "an entity's", guardedStream, shows(200), of(mains("headMain"), "", "")},
		{"headStream", "a runner's wakes", ofWakes, shows(200), of(wakes("headWakes"), "", "")},
		{"headStream", "a shared state", ofShared, shows(200), of(shared("headShared"), "", "")},
		{"createStream", "plain", plainStream.with(users(shows(201))).with(kind{elsewhere: shows(201)}), shows(201), streamAsk("created-{column}", "", "[1]", isJSON...)},
		{"createStream", "an entity's", guardedStream.with(users(reserved)).with(kind{elsewhere: shows(201)}), reserved, of(mains("createMain"), "", "", isJSON...)},
		{"createStream", "a fork of an entity's", guardedStream.with(users(reserved)), reserved, func(w *world) ask {
			return ask{path: map[string]string{"path": "fork-{column}"}, header: []string{"Stream-Forked-From", "/" + main(w.entity("forkedFrom"))}}
		}},
		{"createStream", "a runner's wakes", reservedPath, reserved, streamAsk("runners/new/wake", "", "", isJSON...)},
		{"createStream", "a shared state", ofShared, shows(201), func(w *world) ask {
			return ask{path: map[string]string{"path": "_electric/shared-state/created-{column}"}, header: append([]string{"Electric-Owner-Entity", "/" + owners + "-task/" + w.entity("sharing")}, isJSON...)}
		}},
		{"createStream", "a shared state that is there", ofShared, shows(200), of(shared("createShared"), "", "", isJSON...)},
		{"appendToStream", "plain", plainStream.with(users(shows(204))), shows(204), of(plain("append"), "", "[1]", isJSON...)},
		{"appendToStream", "an entity's, without the holder's token", guardedStream, no(401, "UNAUTHORIZED"), of(mains("appendMain"), "", row1, isJSON...)},
		{"appendToStream", "an entity's", byWriteToken, shows(204), writing("appendHeld", "main")},
		{"appendToStream", "an entity's errors", byWriteToken, shows(204), writing("appendError", "error")},
		{"appendToStream", "an entity's file", guardedStream.with(kind{elsewhere: no(401, "UNAUTHORIZED")}), no(401, "UNAUTHORIZED"), of(files("appendFile"), "", "x", "Content-Type", "text/plain")},
		{"appendToStream", "a runner's wakes", reservedPath, reserved, of(wakes("appendWakes"), "", `{"type":"wake"}`, isJSON...)},
		{"appendToStream", "a shared state", ofShared, shows(204), of(shared("appendShared"), "", row1, isJSON...)},
		{"appendToStream", "the members", reservedPath, reserved, of(members, "", row1, isJSON...)},
		{"deleteStream", "plain", plainStream.with(users(shows(204))), shows(204), func(w *world) ask {
			for _, c := range columns {
				w.stream(wording(c).Replace("plain-delete-{column}"))
			}
			return ask{path: map[string]string{"path": "plain-delete-{column}"}}
		}},
		{"deleteStream", "an entity's", guardedStream.with(users(reserved)), reserved, of(mains("deleteMain"), "", "")},
		{"deleteStream", "an entity's file", guardedStream.with(users(reserved)), reserved, of(files("deleteFile"), "", "")},
		{"deleteStream", "a runner's wakes", reservedPath, reserved, of(wakes("deleteWakes"), "", "")},
		// Nobody deletes one, and is told so whoever he is.
		{"deleteStream", "a shared state", everybody(no(401, "UNAUTHORIZED")), no(401, "UNAUTHORIZED"), of(shared("deleteShared"), "", "")},
	}
}
