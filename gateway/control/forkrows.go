package control

import (
	"bytes"
	"encoding/json"
	"strings"
)

// forkNames maps what a fork renames: urls of entities, ids of shared states.
type forkNames struct {
	urls   map[string]string
	shared map[string]string
}

// sharedStates is the path below which shared states lie.
const sharedStates = "/_electric/shared-state/"

// text maps any text that is a name of something forked, whole.
func (n forkNames) text(s string) string {
	if to, ok := n.urls[s]; ok {
		return to
	}
	for _, stream := range []string{"/main", "/error"} {
		if base, ok := strings.CutSuffix(s, stream); ok {
			if to, ok := n.urls[base]; ok {
				return to + stream
			}
		}
	}
	if to, ok := n.shared[s]; ok {
		return to
	}
	if id, ok := strings.CutPrefix(s, sharedStates); ok {
		if to, ok := n.shared[id]; ok {
			return sharedStates + to
		}
	}
	return s
}

// value maps every text within a JSON value.
func (n forkNames) value(raw json.RawMessage) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return raw
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			return n.text(v)
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	out, err := encodeJSON(walk(v))
	if err != nil {
		return raw
	}
	return out
}

func encodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// fields are a JSON object's members.
type fields map[string]json.RawMessage

func (f fields) text(name string) string {
	var s string
	if len(f[name]) == 0 || f[name][0] != '"' || json.Unmarshal(f[name], &s) != nil {
		return ""
	}
	return s
}

func (f fields) set(name string, v any) {
	if raw, err := encodeJSON(v); err == nil { // strings and raw JSON
		f[name] = raw
	}
}

func (f fields) object(name string) fields {
	var o fields
	if json.Unmarshal(f[name], &o) != nil || o == nil {
		o = fields{}
	}
	return o
}

// manifest maps one manifest entry: its key and value, whether anything
// changed, and whether the entry asks for something that is to be set up for the
// fork too.
func (n forkNames) manifest(source, target, key string, raw json.RawMessage) (newKey string, value json.RawMessage, changed, active bool) {
	var f fields
	if json.Unmarshal(raw, &f) != nil || f == nil {
		return key, raw, false, false
	}
	config := f.object("config")
	newKey = key
	// at renames one member, and says whether it did.
	at := func(o fields, name string, names map[string]string) (string, bool) {
		to, ok := names[o.text(name)]
		if ok {
			o.set(name, to)
			changed = true
		}
		return to, ok
	}
	switch kind, sort := f.text("kind"), f.text("sourceType"); {
	case kind == "child":
		active = true
		if to, ok := at(f, "entity_url", n.urls); ok {
			typ, id := splitURL(to)
			if t := f.text("entity_type"); t != "" {
				typ = t
			}
			f.set("id", id)
			newKey = "child:" + typ + ":" + id
		}
	case kind == "observe":
		active = true
		at(f, "entity_url", n.urls)
	case kind == "shared-state":
		active = true
		if to, ok := at(f, "id", n.shared); ok {
			newKey = "shared-state:" + to
		}
	case kind == "source" && sort == "entity":
		active = true
		to, ok := at(f, "sourceRef", n.urls)
		if other, too := at(config, "entityUrl", n.urls); too {
			to, ok = other, true
		}
		if ok {
			typ, _ := splitURL(to)
			f.set("sourceRef", to)
			config.set("entityUrl", to)
			config.set("streamPath", to+"/main")
			config.set("entityType", typ)
			newKey = "source:entity:" + to
		}
	case kind == "source" && sort == "db":
		active = true
		to, ok := at(f, "sourceRef", n.shared)
		if other, too := at(config, "id", n.shared); too {
			to, ok = other, true
		}
		if ok {
			f.set("sourceRef", to)
			config.set("id", to)
			newKey = "source:db:" + to
		}
	case kind == "source":
		active = true
	case kind == "schedule":
		active = true
		at(f, "targetUrl", n.urls)
		at(f, "senderUrl", n.urls)
	case kind == "attachment":
		if id := f.text("id"); f.text("streamPath") == source+"/attachments/"+id {
			f.set("streamPath", target+"/attachments/"+id)
			changed = true
		}
	}
	if !changed {
		return key, raw, false, active
	}
	if len(config) > 0 {
		f.set("config", config)
	}
	f.set("key", newKey)
	out, err := encodeJSON(f)
	if err != nil {
		return key, raw, false, active
	}
	return newKey, out, true, active
}

// splitURL splits an entity's url into type and id.
func splitURL(url string) (typ, id string) {
	typ, id, _ = strings.Cut(strings.TrimPrefix(url, "/"), "/")
	return typ, id
}

// sharedIDs are the ids of the shared states that manifest entries name.
func (r forkRows) sharedIDs() []string {
	var out []string
	set := r["manifest"]
	for _, key := range set.keys() {
		var f fields
		if json.Unmarshal(set.vals[key].json, &f) != nil {
			continue
		}
		switch config := f.object("config"); {
		case f.text("kind") == "shared-state":
			out = append(out, f.text("id"))
		case f.text("kind") == "source" && f.text("sourceType") == "db":
			out = append(out, f.text("sourceRef"), config.text("id"))
		}
	}
	return out
}

// attachments are the ids of the files that manifest entries name.
func (r forkRows) attachments() []string {
	var out []string
	set := r["manifest"]
	for _, key := range set.keys() {
		var f fields
		if json.Unmarshal(set.vals[key].json, &f) == nil && f.text("kind") == "attachment" && attachmentID(f.text("id")) {
			out = append(out, f.text("id"))
		}
	}
	return out
}

// children are the urls of the children that manifest entries name.
func (r forkRows) children() map[string]bool {
	out := map[string]bool{}
	set := r["manifest"]
	for _, key := range set.keys() {
		var f fields
		if json.Unmarshal(set.vals[key].json, &f) == nil && f.text("kind") == "child" {
			out[f.text("entity_url")] = true
		}
	}
	return out
}

// reconcile are the rows that make a stream which began as another entity's true
// of the fork; observe says that its manifest has to be carried out.
func (r forkRows) reconcile(n forkNames, source, target string, created any, txid string) (rows []string, observe bool) {
	tell := func(operation, typ, key string, value any) {
		rows = append(rows, forkRow(operation, txid, source, typ, key, value))
	}
	tell("update", "entity_created", "entity-created", created)
	set := r["manifest"]
	for _, key := range set.keys() {
		newKey, value, changed, active := n.manifest(source, target, key, set.vals[key].json)
		observe = observe || active
		switch {
		case newKey != key:
			tell("delete", "manifest", key, nil)
			tell("insert", "manifest", newKey, value)
		case changed || active:
			tell("update", "manifest", key, value)
		}
	}
	set = r["child_status"]
	for _, key := range set.keys() {
		var f fields
		if json.Unmarshal(set.vals[key].json, &f) != nil {
			continue
		}
		if to, ok := n.urls[f.text("entity_url")]; ok {
			typ, _ := splitURL(to)
			f.set("entity_url", to)
			f.set("entity_type", typ)
			tell("update", "child_status", key, f)
		}
	}
	set = r["replay_watermark"]
	for _, key := range set.keys() {
		var f fields
		if json.Unmarshal(set.vals[key].json, &f) != nil {
			continue
		}
		from := f.text("source_id")
		to := n.text(from)
		if from == "" || to == from {
			continue
		}
		f.set("source_id", to)
		if key == from {
			tell("delete", "replay_watermark", key, nil)
			tell("insert", "replay_watermark", to, f)
		} else {
			tell("update", "replay_watermark", key, f)
		}
	}
	return rows, observe
}

// forkRow is a row that a fork begins with.
func forkRow(operation, txid, source, typ, key string, value any) string {
	type headers struct {
		Operation  string `json:"operation"`
		TxID       string `json:"txid"`
		ForkedFrom string `json:"forkedFrom"`
	}
	// Structs, strings and JSON that was parsed before: encoding cannot fail.
	out, _ := encodeJSON(struct {
		Headers headers `json:"headers"`
		Type    string  `json:"type"`
		Key     string  `json:"key"`
		Value   any     `json:"value,omitempty"`
	}{headers{operation, txid, source}, typ, key, value})
	return strings.ToValidUTF8(string(out), "\ufffd") // what holders write need not be text
}
