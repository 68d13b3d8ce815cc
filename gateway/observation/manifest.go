package observation

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// effect is what one key of a manifest asks for, as manifest_apply reads it.
type effect struct {
	Key     string         `json:"key"`
	At      int64          `json:"at"`
	Wake    *wakeEffect    `json:"wake,omitempty"`
	Cron    *cronEffect    `json:"cron,omitempty"`
	Link    string         `json:"link,omitempty"`
	Members *membersEffect `json:"members,omitempty"`
	Send    *sendEffect    `json:"send,omitempty"`
}

type wakeEffect struct {
	Source    string `json:"source"`
	Condition string `json:"condition"`
	Debounce  int64  `json:"debounce"`
	Timeout   int64  `json:"timeout"`
	Include   bool   `json:"include"`
}

type cronEffect struct {
	Expression string `json:"expression"`
	Timezone   string `json:"timezone"`
}

type membersEffect struct {
	Ref  string            `json:"ref"`
	Tags map[string]string `json:"tags"`
}

type sendEffect struct {
	Entity   string `json:"entity"`
	Message  string `json:"message"`
	At       string `json:"at"`
	Manifest string `json:"manifest"`
	Producer string `json:"producer"`
}

// SharedStatePrefix begins the paths of shared states.
const SharedStatePrefix = "_electric/shared-state/"

// maxName bounds keys and paths taken from a manifest, in bytes.
const maxName = 1024

// effects reads a page of an entity's manifest rows: what the last row of each
// key asks for, in the order of those.
func effects(o store.Observer) []effect {
	last := map[string]int{}
	var out []effect
	for i, payload := range o.Payloads {
		for _, e := range events(payload, o.Positions[i]) {
			if e.typ != "manifest" || e.key == "" || !storable(e.key) {
				continue
			}
			f := effect{Key: e.key, At: e.position}
			if e.operation != "delete" && e.value != nil {
				f = read(o, e)
			}
			if at, ok := last[e.key]; ok {
				out = append(out[:at], out[at+1:]...)
				for k, n := range last {
					if n > at {
						last[k] = n - 1
					}
				}
			}
			last[e.key] = len(out)
			out = append(out, f)
		}
	}
	return out
}

// storable says that Postgres can store a text and that it is not too long.
func storable(s string) bool {
	return len(s) <= maxName && strings.IndexByte(s, 0) < 0 && strings.ToValidUTF8(s, "") == s
}

// read says what one manifest row asks for. What cannot be understood asks for
// nothing: its writer has had its answer long ago.
func read(o store.Observer, e event) effect {
	f := effect{Key: e.key, At: e.position}
	v := e.value
	kind := text(v["kind"])
	config := object(v["config"])
	wake := v["wake"]
	source := ""
	switch {
	case kind == "child" || kind == "observe":
		source = text(v["entity_url"])
	case kind == "source" && text(v["sourceType"]) == "entity":
		if source = text(config["entityUrl"]); source == "" {
			source = text(v["sourceRef"])
		}
	case kind == "source" && text(v["sourceType"]) == "cron":
		f.Cron, source = readCron(text(config["expression"]), text(config["timezone"]))
	case kind == "source" && text(v["sourceType"]) == "entities":
		if ref := text(v["sourceRef"]); ref != "" {
			source = "/_entities/" + ref
		}
		var tags map[string]string
		if len(config["tags"]) > 0 && json.Unmarshal(config["tags"], &tags) == nil && tags != nil && storableTags(tags) {
			// Whatever the writer calls it, it is the stream of what its creator sees.
			f.Members = &membersEffect{MembershipRef(tags, o.Principal), tags}
			source = "/_entities/" + f.Members.Ref
		}
	case kind == "source" && text(v["sourceType"]) == "db":
		id := text(v["sourceRef"])
		if id == "" {
			id = text(config["id"])
		}
		f.Link, source = sharedState(id)
	case kind == "shared-state":
		f.Link, source = sharedState(text(v["id"]))
	case kind == "source" && (text(v["sourceType"]) == "pgSync" || text(v["sourceType"]) == "webhook"):
		// Nothing serves these sources yet; a stream that one names is observed.
		source = text(config["streamUrl"])
	case kind == "schedule" && text(v["scheduleType"]) == "cron":
		f.Cron, source = readCron(text(v["expression"]), text(v["timezone"]))
		if len(wake) == 0 {
			wake = json.RawMessage(`{"on":"change"}`)
		}
	case kind == "schedule" && text(v["scheduleType"]) == "future_send":
		f.Send = readSend(o, e)
	}
	if source == "" || !storable(source) || len(wake) == 0 {
		return f
	}
	cond, why := ParseCondition(wake)
	cond.Collections = append(cond.Collections, typesOf(cond.Collections, v, config)...)
	if why != "" || len(cond.String()) > maxName*16 {
		return f
	}
	m := object(wake)
	f.Wake = &wakeEffect{Source: source, Condition: cond.String(), Include: string(m["includeResponse"]) != "false"}
	if !cond.RunFinished {
		f.Wake.Debounce, f.Wake.Timeout = number(m["debounceMs"], MaxDelay), number(m["timeoutMs"], MaxDelay)
	}
	if strings.IndexByte(cond.String(), 0) >= 0 || strings.Contains(cond.String(), `\u0000`) {
		f.Wake = nil // no collection is called so
	}
	return f
}

// typesOf are the types of rows that a manifest row says its collections have, in
// itself or in its config, for those of some names.
func typesOf(names []string, row, config map[string]json.RawMessage) []string {
	var out []string
	for _, schema := range []json.RawMessage{config["collections"], row["collections"]} {
		if len(names) == 0 || len(schema) == 0 {
			continue
		}
		has := object(schema)
		for _, name := range names {
			if t := text(object(has[name])["type"]); t != "" {
				out = append(out, t)
			}
		}
	}
	return out
}

func storableTags(tags map[string]string) bool {
	for k, v := range tags {
		if !storable(k) || len(v) > 16<<10 || strings.IndexByte(v, 0) >= 0 {
			return false
		}
	}
	return len(tags) <= 64
}

func sharedState(id string) (link, source string) {
	if id == "" || !storable(id) || strings.Contains(id, "..") {
		return "", ""
	}
	return SharedStatePrefix + id, "/" + SharedStatePrefix + id
}

func readCron(expression, timezone string) (*cronEffect, string) {
	c, err := ParseCron(expression, timezone)
	if err != nil {
		return nil, ""
	}
	return &cronEffect{c.Expression, c.Timezone}, "/" + c.Path()
}

// readSend reads a message that an entity has scheduled, unless it was sent or
// has failed.
func readSend(o store.Observer, e event) *sendEffect {
	status := text(e.value["status"])
	at, err := time.Parse(time.RFC3339Nano, text(e.value["fireAt"]))
	entity, producer := text(e.value["targetUrl"]), text(e.value["producerId"])
	if status != "" && status != "pending" || err != nil || at.Year() < 1970 || at.Year() > 9000 || len(e.value["payload"]) == 0 ||
		!strings.HasPrefix(entity, "/") || !storable(entity) || !storable(producer) || producer == "" {
		return nil
	}
	sender := text(e.value["senderUrl"])
	if !strings.HasPrefix(sender, "/principal/") {
		// Its own word for who sends counts only as far as it is true.
		sender = o.SubscriberURL
	}
	m := staterow.Message{Payload: e.value["payload"], Type: text(e.value["messageType"]), Key: "scheduled-" + producer, From: sender, Mode: "immediate"}
	if sender == o.SubscriberURL {
		m.FromAgent = sender
	} else if sender != o.Principal {
		m.From, m.FromAgent = o.SubscriberURL, o.SubscriberURL
	}
	return &sendEffect{Entity: entity, Message: staterow.Encode(m), At: at.UTC().Format(time.RFC3339Nano), Manifest: string(e.raw), Producer: producer}
}
