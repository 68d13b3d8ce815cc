package observation

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Message is what is sent later: the parts of an inbox row but its time. Payload
// is any JSON.
type Message struct {
	Payload       json.RawMessage `json:"payload"`
	Type          string          `json:"type,omitempty"`
	Key           string          `json:"key,omitempty"`
	Mode          string          `json:"mode,omitempty"`
	Position      string          `json:"position,omitempty"`
	From          string          `json:"from,omitempty"`
	FromPrincipal string          `json:"from_principal,omitempty"`
	FromAgent     string          `json:"from_agent,omitempty"`
}

// Encode is the stored form.
func (m Message) Encode() string { return encode(m) }

// row renders the message as it is sent at a time.
func (m Message) row(key string, now time.Time) string {
	if m.Key != "" {
		key = m.Key
	}
	at := isoTime(now)
	v := struct {
		From          string          `json:"from"`
		Payload       json.RawMessage `json:"payload"`
		Timestamp     string          `json:"timestamp"`
		Mode          string          `json:"mode"`
		Status        string          `json:"status"`
		ProcessedAt   string          `json:"processed_at,omitempty"`
		MessageType   string          `json:"message_type,omitempty"`
		FromPrincipal string          `json:"from_principal,omitempty"`
		FromAgent     string          `json:"from_agent,omitempty"`
		Position      string          `json:"position,omitempty"`
	}{From: m.From, Payload: m.Payload, Timestamp: at, Mode: m.Mode, Status: "pending", MessageType: m.Type,
		FromPrincipal: m.FromPrincipal, FromAgent: m.FromAgent, Position: m.Position}
	if v.Mode == "" {
		v.Mode = "immediate"
	}
	switch {
	case v.Mode == "immediate" || v.Mode == "steer":
		v.Status, v.ProcessedAt = "processed", at
	case v.Position == "":
		// As a message that is sent now gets it.
		v.Position = fmt.Sprintf("%016d:a0", now.UnixMilli())
	}
	return stateRow("insert", "", uuid.NewString(), "inbox", key, v)
}
