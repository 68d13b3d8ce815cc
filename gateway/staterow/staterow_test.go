package staterow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/staterow"
)

func TestHeadersBeginARow(t *testing.T) {
	t.Parallel()
	row := staterow.Text(staterow.Headers{Operation: "upsert", TxID: "t"}, "tags", "colour", map[string]string{"value": "<blue>"})
	if want := `{"headers":{"operation":"upsert","txid":"t"},"type":"tags","key":"colour","value":{"value":"<blue>"}}`; row != want {
		t.Errorf("%s, not %s", row, want)
	}
	if !strings.HasPrefix(row[staterow.HeadersAt:], `"operation"`) {
		t.Errorf("the headers do not begin at %d: %s", staterow.HeadersAt, row)
	}
	if row := staterow.Text(staterow.Headers{Operation: "delete", Author: &staterow.Author{ID: "kyle"}}, "tags", "colour", nil); strings.Contains(row, "value") ||
		!strings.Contains(row, `"principal":{"url":"","key":"","kind":"","id":"kyle"}`) {
		t.Error(row)
	}
}

func TestAMessageIsRenderedByItsMode(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_123)
	for _, c := range []struct {
		mode, position                    string
		status, processedAt, wantPosition string
	}{
		{"", "", "processed", "2023-11-14T22:13:20.123Z", ""},
		{"immediate", "", "processed", "2023-11-14T22:13:20.123Z", ""},
		{"steer", "", "processed", "2023-11-14T22:13:20.123Z", ""},
		{"queued", "", "pending", "", "0001700000000123:a0"},
		{"paused", "p1", "pending", "", "p1"},
	} {
		m := staterow.Message{Payload: json.RawMessage(`{"a":1}`), Mode: c.mode, Position: c.position}
		text, key, txid := m.Row(now)
		var row struct {
			Headers struct{ TxID string }
			Type    string
			Key     string
			Value   struct {
				Status, Position string
				ProcessedAt      string `json:"processed_at"`
			}
		}
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			t.Fatal(err)
		}
		if v := row.Value; v.Status != c.status || v.ProcessedAt != c.processedAt || v.Position != c.wantPosition {
			t.Errorf("%q: %+v", c.mode, v)
		}
		if row.Type != "inbox" || row.Key != key || !strings.HasPrefix(key, "msg-in-1700000000123-") || row.Headers.TxID != txid || len(txid) != 36 {
			t.Errorf("%q: %s", c.mode, text)
		}
	}
	waits := staterow.Message{Key: "k", TxID: "t", Payload: json.RawMessage(`1`)}
	if _, key, txid := waits.Row(now); key != "k" || txid != "t" {
		t.Errorf("%s %s", key, txid)
	}
	if got := waits.Encode(); got != `{"payload":1,"key":"k"}` {
		t.Error(got)
	}
}
