package staterow

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Message is one for an entity's inbox: the parts of its row but the time.
// Payload is any JSON.
type Message struct {
	Payload       json.RawMessage `json:"payload"`
	Type          string          `json:"type,omitempty"`
	Key           string          `json:"key,omitempty"`  // made when it is not given
	Mode          string          `json:"mode,omitempty"` // empty is immediate
	Position      string          `json:"position,omitempty"`
	From          string          `json:"from,omitempty"`
	FromPrincipal string          `json:"from_principal,omitempty"`
	FromAgent     string          `json:"from_agent,omitempty"`
	TxID          string          `json:"-"` // made when it is not given
}

// Encode is the form in which a message waits until it is sent. It has no TxID.
func (m Message) Encode() string { return Encode(m) }

// Row renders the message as it is sent at a time, and returns its key and
// transaction id.
func (m Message) Row(now time.Time) (text, key, txid string) {
	if m.Key == "" {
		m.Key = "msg-in-" + strconv.FormatInt(now.UnixMilli(), 10) + "-" + RandomID()
	}
	if m.TxID == "" {
		m.TxID = uuid.NewString()
	}
	if m.Mode == "" {
		m.Mode = "immediate"
	}
	at := Time(now)
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
	switch {
	case m.Mode == "immediate" || m.Mode == "steer":
		v.Status, v.ProcessedAt = "processed", at
	case v.Position == "":
		// Queued messages sort by position; between two of them there is always room for another.
		v.Position = fmt.Sprintf("%016d:a0", now.UnixMilli())
	}
	return Text(Headers{Operation: "insert", TxID: m.TxID}, "inbox", m.Key, v), m.Key, m.TxID
}

// RandomID is 80 random bits in lower-case letters and digits.
func RandomID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}
