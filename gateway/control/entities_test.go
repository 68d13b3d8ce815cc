package control

import "testing"

func TestSmoke(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	t.Log(string(r.do("GET", "/_electric/health", "").body))
	t.Log(string(r.do("GET", "/openapi.json", "").body)[:300])
	t.Log(string(r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"x","inbox_schemas":{"a":{"type":"string"}}}`).body))
	t.Log(string(r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`).body))
	t.Log(string(r.must(201, kyle, "PUT", "/_electric/entities/chat/1", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`).body))
	t.Log(string(r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":{"a":1}}`).body))
	r.route()
	a := r.must(200, kyle, "POST", "/_electric/runners/mac/claim", `{}`)
	t.Log(string(a.body))
	t.Log(string(r.must(200, kyle, "GET", "/_electric/entities/chat/1", ``).body))
	t.Log(string(r.must(200, kyle, "GET", "/_electric/runners/mac", ``).body))
	t.Log(string(r.must(200, kyle, "GET", "/_electric/runners/mac/health", ``).body))
	t.Log(string(r.must(200, kyle, "GET", "/_electric/consumers/"+a.str("consumerId"), ``).body))
	t.Log(string(r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+a.str("wakeId"), `{"epoch":1,"wakeId":"`+a.str("wakeId")+`"}`, "electric-claim-token", a.str("claimToken")).body))
	t.Log(string(r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+a.str("wakeId"), `{"epoch":1}`, "electric-claim-token", a.str("claimToken")).body))
	t.Log(string(r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+a.str("wakeId"), `{"epoch":1,"acks":[],"done":true}`, "electric-claim-token", a.str("claimToken")).body))
	r.must(204, kyle, "POST", "/_electric/runners/mac/claim", `{"x":1}`)
}
