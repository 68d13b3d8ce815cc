// Package staterow writes what the gateway itself appends to entities' streams: rows of the State Protocol, and among
// them the messages of an inbox. It promises a text that can be appended as it is, whose headers come first and begin
// it, so that an offset can be spliced in when it is read. It knows nothing of who appends it, nor when.
package staterow

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// Time is the form of times on the wire.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Author is who wrote a row from outside the entity.
type Author struct {
	URL  string `json:"url"`
	Key  string `json:"key"`
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// Headers of a row. Only Operation is required.
type Headers struct {
	Operation string  `json:"operation"` // insert, update, upsert or delete
	Timestamp string  `json:"timestamp,omitempty"`
	TxID      string  `json:"txid,omitempty"`
	Author    *Author `json:"principal,omitempty"`
}

// HeadersAt is the byte of a row where its headers' members begin and a read
// splices in the offset.
const HeadersAt = int32(len(`{"headers":{`))

// Text is a row of a collection; a nil value is left out.
func Text(h Headers, collection, key string, value any) string {
	return Encode(struct {
		Headers Headers `json:"headers"`
		Type    string  `json:"type"`
		Key     string  `json:"key"`
		Value   any     `json:"value,omitempty"`
	}{h, collection, key, value})
}

// Encode is JSON without HTML escaping. It is for strings, JSON that was parsed
// before, and structs of them, so it cannot fail.
func Encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n")
}
