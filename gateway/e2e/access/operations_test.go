package access

import (
	"fmt"
	"net/url"
	"strings"
)

// taskAsk is an ask about an entity of kyle's that the row makes for itself.
func taskAsk(id string, body string, header ...string) func(*world) ask {
	return func(w *world) ask { return ask{path: taskPath(w.entity(id)), body: body, header: header} }
}

func taskPath(id string, more ...string) map[string]string {
	p := map[string]string{"type": owners + "-task", "id": id}
	if len(more) > 0 {
		p["key"] = more[0]
	}
	return p
}

// itemAsk is an ask about something of an entity.
func itemAsk(id, key, body string) func(*world) ask {
	return func(w *world) ask { return ask{path: taskPath(w.entity(id), key), body: body} }
}

// plainly is an ask that needs nothing.
func plainly(query, body string) func(*world) ask {
	return func(*world) ask { return ask{query: query, body: body} }
}

func typeAsk(name, body string) func(*world) ask {
	return func(w *world) ask {
		return ask{path: map[string]string{"name": w.kind(owners + "-" + name)}, body: body}
	}
}

func runnerAsk(name, body string) func(*world) ask {
	return func(w *world) ask {
		return ask{path: map[string]string{"id": w.runner(owners + "-" + name)}, body: body}
	}
}

func subscriptionAsk(name, body string) func(*world) ask {
	return func(w *world) ask {
		return ask{path: map[string]string{"id": w.subscription(owners + "-" + name)}, body: body}
	}
}

func streamAsk(path, query, body string, header ...string) func(*world) ask {
	return func(*world) ask {
		return ask{path: map[string]string{"path": path}, query: query, body: body, header: header}
	}
}

var isJSON = []string{"Content-Type", "application/json"}

const row1 = `{"type":"note","key":"k","value":{"text":"x"},"headers":{"operation":"insert"}}`

// wakeKey is some X25519 public key.
const wakeKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="

const grant = `{"subject_kind":"principal","subject_value":"user:ada","permission":"%s"}`

// operationRows are all operations. What a row is about is its own, so that
// neither order nor another row matters.
func operationRows() []row {
	var rows []row
	for _, more := range [][]row{entityRows(), typeRows(), runnerRows(), poolRows(), moveRows(), leaseRows(), observationRows(), serverRows(), subscriptionRows(), streamRows(), retentionRows()} {
		rows = append(rows, more...)
	}
	return rows
}

func entityRows() []row {
	readable := func(op string) row { return row{op, "", ofEntity, shows(200), taskAsk(op, "")} }
	return []row{
		{"listEntities", "", ofEverybody, shows(200), plainly("", "")},
		{"spawnEntity", "", ofEntity, shows(201), func(*world) ask { return ask{path: taskPath("spawned"), body: `{}`} }},
		{"spawnEntity", "one that is there", ofEntity, no(409, "DUPLICATE_URL"), taskAsk("spawnedAgain", `{}`)},
		{"spawnEntity", "a child of another's", ofEntity.with(users(no(401, "UNAUTHORIZED"))), shows(201), func(w *world) ask {
			w.on(w.mallory, "POST", "/_electric/entity-types", `{"name":"foreign-child","description":"x","permission_grants":[{"subject_kind":"principal_kind","subject_value":"user","permission":"spawn"}]}`, nil)
			return ask{path: map[string]string{"type": "foreign-child", "id": "{column}"}, body: fmt.Sprintf(`{"parent":"/%s-task/%s"}`, owners, w.entity("parent"))}
		}},
		{"spawnEntity", "one for another's runner", ofEntity.with(users(no(403, "RUNNER_FORBIDDEN"))), shows(201), func(w *world) ask {
			w.on(w.mallory, "POST", "/_electric/entity-types", `{"name":"foreign-work","description":"x","permission_grants":[{"subject_kind":"principal_kind","subject_value":"user","permission":"spawn"}]}`, nil)
			return ask{path: map[string]string{"type": "foreign-work", "id": "{column}"}, body: fmt.Sprintf(`{"dispatch_policy":{"targets":[{"type":"runner","runnerId":%q}]}}`, w.runner(owners+"-chosen"))}
		}},
		readable("getEntity"), readable("headEntity"), readable("getEntityDisplay"), readable("getEntityDispatch"), readable("listEntityClaims"), readable("listEntityWakes"),
		readable("listEntityGrants"),
		{"killEntity", "", ofEntity, shows(200), taskAsk("killEntity", "")},
		{"signalEntity", "", ofEntity, shows(200), taskAsk("signalEntity", `{"signal":"SIGSTOP"}`)},
		{"sendToEntity", "", ofEntity, shows(200), taskAsk("sendToEntity", `{"payload":1}`)},
		{"sendToEntity", "later", ofEntity, shows(204), taskAsk("sendLater", `{"payload":1,"afterMs":86400000}`)},
		{"putEntityTag", "", ofEntity, shows(200), itemAsk("putEntityTag", "color", `{"value":"red"}`)},
		{"deleteEntityTag", "", ofEntity, shows(200), itemAsk("deleteEntityTag", "secret", "")},
		{"forkEntity", "", ofEntity, shows(201), taskAsk("forkEntity", `{"waitTimeoutMs":0,"instance_id":"forked"}`)},
		{"putEntityGrant", "", ofEntity, shows(201), taskAsk("putEntityGrant", fmt.Sprintf(grant, "read"))},
		{"putEntityGrant", "for oneself", ofEntity, shows(201), taskAsk("putOwnGrant", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"manage"}`)},
		{"deleteEntityGrant", "", ofEntity, shows(204), func(w *world) ask {
			id := w.entity("deleteEntityGrant")
			var g struct{ ID int64 }
			w.on(w.kyle, "POST", "/_electric/entities/"+owners+"-task/"+id+"/grants", fmt.Sprintf(grant, "read"), &g)
			return ask{path: taskPath(id, fmt.Sprint(g.ID))}
		}},
		{"patchInboxMessage", "", ofEntity, shows(200), func(w *world) ask {
			return ask{path: taskPath(w.queued("patchInboxMessage"), "m"), body: `{"position":"b"}`}
		}},
		{"deleteInboxMessage", "", ofEntity, shows(200), func(w *world) ask {
			return ask{path: taskPath(w.queued("deleteInboxMessage"), "m")}
		}},
		{"writeCollection", "", ofEntity, shows(201), itemAsk("writeCollection", "notes", `{"operation":"insert","value":{"text":"x"}}`)},
		{"putAttachment", "", ofEntity, shows(201), func(w *world) ask {
			contentType, body := form("a")
			return ask{path: taskPath(w.entity("putAttachment")), body: body, header: []string{"Content-Type", contentType}}
		}},
		{"getAttachment", "", ofEntity, shows(200), func(w *world) ask { return ask{path: taskPath(w.attached("getAttachment"), "a")} }},
		{"deleteAttachment", "", ofEntity, shows(200), func(w *world) ask { return ask{path: taskPath(w.attached("deleteAttachment"), "a")} }},
		{"putSchedule", "", ofEntity, shows(200), itemAsk("putSchedule", "s", `{"scheduleType":"future_send","payload":1,"fireAt":"2100-01-01T00:00:00Z"}`)},
		{"putSchedule", "a send to another's entity", guarded.with(users(no(401, "UNAUTHORIZED"))).with(kind{elsewhere: no(404, "UNKNOWN_ENTITY_TYPE")}), no(401, "UNAUTHORIZED"),
			itemAsk("putScheduleAway", "s", `{"scheduleType":"future_send","payload":1,"fireAt":"2100-01-01T00:00:00Z","targetUrl":"/foreign-task/1"}`)},
		{"deleteSchedule", "", ofEntity, shows(200), func(w *world) ask {
			id := w.entity("deleteSchedule")
			w.do("PUT", "/_electric/entities/"+owners+"-task/"+id+"/schedules/s", `{"scheduleType":"future_send","payload":1,"fireAt":"2100-01-01T00:00:00Z"}`)
			return ask{path: taskPath(id, "s")}
		}},
		{"deletePgSyncObservation", "", ofEntity, shows(200), itemAsk("deletePgSyncObservation", "p", "")},
		// There are no such sources; who may not ask is told that first.
		{"subscribeToWebhookSource", "", ofEntity, no(404, "NOT_FOUND"), itemAsk("subscribeToWebhookSource", "s", `{}`)},
		{"unsubscribeFromWebhookSource", "", ofEntity, no(404, "NOT_FOUND"), itemAsk("unsubscribeFromWebhookSource", "s", "")},
		{"subscribeToEventSource", "", ofEntity, no(404, "NOT_FOUND"), itemAsk("subscribeToEventSource", "s", `{}`)},
		{"unsubscribeFromEventSource", "", ofEntity, no(404, "NOT_FOUND"), itemAsk("unsubscribeFromEventSource", "s", "")},
	}
}

// queued is an entity with a message that waits.
func (w *world) queued(id string) string {
	w.Helper()
	w.entity(id)
	w.do("POST", "/_electric/entities/"+owners+"-task/"+id+"/send", `{"payload":1,"mode":"queued","key":"m"}`)
	return id
}

// attached is an entity with a file called a.
func (w *world) attached(id string) string {
	w.Helper()
	w.entity(id)
	contentType, body := form("a")
	w.do("POST", "/_electric/entities/"+owners+"-task/"+id+"/attachments", body, "Content-Type", contentType)
	return id
}

func typeRows() []row {
	return []row{
		{"listEntityTypes", "", ofEverybody, shows(200), plainly("", "")},
		{"putEntityType", "", ofEverybody.with(users(hides(201))).with(kind{elsewhere: shows(201)}), shows(201), plainly("", `{"name":"type-{column}","description":"x"}`)},
		{"putEntityType", "one that is there", ofType.with(kind{elsewhere: shows(201)}), shows(201), func(w *world) ask {
			return ask{body: fmt.Sprintf(`{"name":%q,"description":"mine"}`, w.kind("there"))}
		}},
		{"getEntityType", "", ofType, shows(200), typeAsk("getEntityType", "")},
		{"deleteEntityType", "", ofType, shows(204), typeAsk("deleteEntityType", "")},
		{"patchEntityTypeSchemas", "", ofType, shows(200), typeAsk("patchEntityTypeSchemas", `{"inbox_schemas":{"note":{"type":"object"}}}`)},
		{"listEntityTypeGrants", "", ofType, shows(200), typeAsk("listEntityTypeGrants", "")},
		{"putEntityTypeGrant", "", ofType, shows(201), typeAsk("putEntityTypeGrant", fmt.Sprintf(grant, "spawn"))},
		{"deleteEntityTypeGrant", "", ofType, shows(204), func(w *world) ask {
			name := w.kind(owners + "-deleteEntityTypeGrant")
			var g struct{ ID int64 }
			w.on(w.kyle, "POST", "/_electric/entity-types/"+name+"/grants", fmt.Sprintf(grant, "spawn"), &g)
			return ask{path: map[string]string{"name": name, "grant": fmt.Sprint(g.ID)}}
		}},
	}
}

func runnerRows() []row {
	return []row{
		{"listRunners", "", ofEverybody, shows(200), plainly("", "")},
		{"listRunners", "another's", ofRunner.with(kind{elsewhere: hides(200)}), shows(200), plainly("owner_principal="+url.QueryEscape("/principal/user%3Akyle"), "")},
		{"registerRunner", "", ofEverybody.with(users(hides(201))).with(kind{elsewhere: shows(201)}), shows(201), plainly("", `{"id":"runner-{column}","label":"x"}`)},
		{"registerRunner", "one that is there", ofRunner.with(kind{elsewhere: shows(201)}), shows(201), func(w *world) ask {
			return ask{body: fmt.Sprintf(`{"id":%q,"label":"mine"}`, w.runner("there"))}
		}},
		{"registerRunner", "somebody's", ofRunner.with(kind{elsewhere: shows(201)}), shows(201), plainly("", `{"id":"somebodys-{column}","label":"x","owner_principal":"/principal/user%3Akyle"}`)},
		{"getRunner", "", ofRunner, shows(200), runnerAsk("getRunner", "")},
		{"getRunnerHealth", "", ofRunner, shows(200), runnerAsk("getRunnerHealth", "")},
		{"heartbeatRunner", "", ofRunner, shows(200), runnerAsk("heartbeatRunner", `{"lease_ms":1000}`)},
		{"enableRunner", "", ofRunner, shows(200), runnerAsk("enableRunner", "")},
		{"disableRunner", "", ofRunner, shows(200), runnerAsk("disableRunner", "")},
		{"putRunnerWakeKey", "", ofRunner, shows(200), runnerAsk("putRunnerWakeKey", `{"wake_key":"`+wakeKey+`"}`)},
		{"deleteRunnerWakeKey", "", ofRunner, shows(200), runnerAsk("deleteRunnerWakeKey", "")},
		{"claimForRunner", "", ofRunner, shows(200), func(w *world) ask {
			l := w.waiting("claimForRunner")
			return ask{path: map[string]string{"id": l.runner}, body: fmt.Sprintf(`{"wakeId":%q}`, l.WakeID)}
		}},
		{"claimForRunner", "another's wake by one's own runner", ofRunner.with(kind{another: no(400, "INVALID_REQUEST"), posing: no(400, "INVALID_REQUEST")}), no(403, "RUNNER_FORBIDDEN"), func(w *world) ask {
			l := w.waiting("claimForAnother")
			return ask{path: map[string]string{"id": "foreign-runner"}, body: fmt.Sprintf(`{"wakeId":%q}`, l.WakeID)}
		}},
	}
}

// leaseRows are the operations of claims, by users and by the tokens of leases.
func leaseRows() []row {
	consumer := func(l lease) map[string]string { return map[string]string{"id": l.ConsumerID} }
	under := func(id, body string) func(*world) ask {
		return func(w *world) ask {
			l := w.held(id)
			body := strings.ReplaceAll(body, "{tail}", l.Streams[0].Offset)
			return ask{path: consumer(l), body: body, tokens: &tokens{l.ClaimToken, l.overClaim, w.foreign.ClaimToken}}
		}
	}
	callback := func(id, body string) func(*world) ask {
		return func(w *world) ask {
			l := w.held(id)
			return ask{path: map[string]string{"wakeId": l.WakeID}, body: body, tokens: &tokens{l.ClaimToken, l.overClaim, w.foreign.ClaimToken}}
		}
	}
	wake := func(id string) func(*world) ask {
		return func(w *world) ask { return ask{path: map[string]string{"wakeId": w.waiting(id).WakeID}} }
	}
	return []row{
		{"getConsumer", "", ofEntity.with(kind{elsewhere: no(404, "NOT_FOUND")}), shows(200), func(w *world) ask { return ask{path: consumer(w.held("getConsumer"))} }},
		{"acquireConsumer", "", ofRunner, shows(200), func(w *world) ask {
			l := w.held("acquireConsumer")
			must(w.T, 200, w.client, "POST", w.url+"/_electric/wake-callbacks/"+l.WakeID, fmt.Sprintf(`{"epoch":%d,"done":true,"acks":[]}`, l.Epoch), "Electric-Claim-Token", l.ClaimToken)
			w.do("POST", "/_electric/entities"+l.entity+"/send", `{"payload":1}`)
			w.wake(w.kyle, &l, 3)
			return ask{path: consumer(l), body: `{}`}
		}},
		{"heartbeatConsumer", "", byToken, shows(200), under("heartbeatConsumer", `{}`)},
		{"ackConsumer", "", byToken, shows(200), under("ackConsumer", `{"acks":[{"path":"/`+owners+`-task/ackConsumer/main","offset":"{tail}"}]}`)},
		// A release that is repeated is answered as it was.
		{"releaseConsumer", "", byToken.with(kind{expired: shows(200)}), shows(200), under("releaseConsumer", `{}`)},
		{"wakeCallback", "a heartbeat", byToken.with(kind{expired: no(401, "CLAIM_TOKEN_INVALID")}), shows(200), callback("beat", `{"epoch":2}`)},
		{"wakeCallback", "the end", byToken.with(kind{expired: no(401, "CLAIM_TOKEN_INVALID")}), shows(200), callback("end", `{"epoch":2,"done":true,"acks":[]}`)},
		{"getWake", "", ofWake, shows(200), wake("getWake")},
		{"redeliverWake", "", ofWake, shows(200), wake("redeliverWake")},
	}
}

func observationRows() []row {
	watched := func(id, body string) func(*world) ask {
		return func(w *world) ask {
			return ask{body: fmt.Sprintf(`{"subscriberUrl":"/%s-task/%s","sourceUrl":"/%s-task/%s"%s}`, owners, w.entity(id), owners, w.entity(id+"Source"), body)}
		}
	}
	refusedSources := guarded.with(users(no(503, "NOT_CONFIGURED"))).with(kind{elsewhere: no(503, "NOT_CONFIGURED")})
	return []row{
		{"registerWake", "", ofEntity, shows(204), watched("registerWake", `,"condition":"runFinished"`)},
		{"registerWake", "by what another's entity does", ofEntity.with(users(no(401, "UNAUTHORIZED"))), no(401, "UNAUTHORIZED"), func(w *world) ask {
			return ask{body: fmt.Sprintf(`{"subscriberUrl":"/%s-task/%s","sourceUrl":"/foreign-task/1","condition":"runFinished"}`, owners, w.entity("watchesAway"))}
		}},
		{"unregisterWake", "", ofEntity, shows(204), func(w *world) ask {
			a := watched("unregisterWake", "")(w)
			w.do("POST", "/_electric/wake", a.body[:len(a.body)-1]+`,"condition":"runFinished"}`)
			return a
		}},
		{"ensureCronStream", "", ofEverybody, shows(200), plainly("", `{"expression":"0 0 1 1 *"}`)},
		{"ensureMembershipStream", "", ofEverybody, shows(200), plainly("", `{"tags":{"secret":"`+hidden+`"}}`)},
		{"listWebhookSources", "", ofEverybody, shows(200), plainly("", "")},
		{"listEventSources", "", ofEverybody, shows(200), plainly("", "")},
		{"registerPgSync", "", refusedSources, no(503, "NOT_CONFIGURED"), plainly("", `{"options":{"table":"t"}}`)},
	}
}

func serverRows() []row {
	system := func(query, body string, path map[string]string) func(*world) ask {
		return func(*world) ask { return ask{query: query, body: body, path: path, system: true} }
	}
	return []row{
		{"getHealth", "", public, shows(200), plainly("", "")},
		{"getSigningKeys", "", public, shows(200), plainly("", "")},
		{"createService", "", ofSystem.with(kind{elsewhere: shows(201)}), shows(201), system("", `{"name":"service-{column}"}`, nil)},
		{"listServices", "", ofSystem, shows(200), system("", "", nil)},
		{"listPlugins", "", ofSystem, shows(200), system("", "", nil)},
		{"getPluginLog", "", ofSystem, shows(200), system("", "", map[string]string{"name": "webhook"})},
		{"listTransports", "", ofEverybody, shows(200), plainly("", "")},
		{"readShape", "entities", ofEverybody, shows(200), plainly("table=entities&offset=-1", "")},
		{"readShape", "types", ofEverybody, shows(200), plainly("table=entity_types&offset=-1", "")},
		{"readShape", "runners", ofEverybody, shows(200), plainly("table=runners&offset=-1", "")},
		{"readShape", "wakes", ofEverybody, shows(200), plainly("table=wake_notifications&offset=-1", "")},
		{"readShape", "claims", ofEverybody, shows(200), plainly("table=consumer_claims&offset=-1", "")},
		{"readShape", "permissions", ofEverybody, shows(200), plainly("table=entity_effective_permissions&offset=-1", "")},
		{"readShape", "what is no table of it", guarded.with(users(no(403, "TABLE_NOT_ALLOWED"))).with(kind{elsewhere: no(403, "TABLE_NOT_ALLOWED")}), no(403, "TABLE_NOT_ALLOWED"),
			plainly("table=audit_log&offset=-1", "")},
		{"readShapeSubset", "", ofEverybody, shows(200), plainly("table=entities", `{"limit":100}`)},
	}
}
