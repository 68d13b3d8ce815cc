// Package nats carries wakes to subjects of a NATS JetStream.
//
// It promises that an accepted wake has been acknowledged by a stream, that a
// wake goes only to subjects that the configuration allows, and that a server
// which is away is no failure for good. Receivers verify the gateway's
// signature by the header Webhook-Signature over the message's bytes.
package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// Config is the configuration of the transport.
type Config struct {
	// URL of the servers, with commas between them.
	URL string `json:"url"`
	// Credentials is a file as NATS's tools make it; NKey one with a seed.
	Credentials string `json:"credentials"`
	NKey        string `json:"nkey"`
	// CA, Certificate and Key are PEM files for TLS.
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	// Subjects are patterns of the subjects that targets may name; none means all.
	Subjects []string `json:"subjects"`
}

const schema = `{"type":"object","required":["subject"],"properties":{"type":{"type":"string"},"subscription_id":{"type":"string"},` +
	`"subject":{"type":"string","minLength":1,"maxLength":256,"description":"The subject that wakes are published to; a stream must take it."}},` +
	`"additionalProperties":false,"examples":[{"type":"nats","subject":"wakes.builds"}]}`

const configSchema = `{"type":"object","required":["url"],"additionalProperties":false,"properties":{"url":{"type":"string","minLength":1},` +
	`"credentials":{"type":"string"},"nkey":{"type":"string"},"ca":{"type":"string"},"certificate":{"type":"string"},"key":{"type":"string"},` +
	`"subjects":{"type":"array","items":{"type":"string"}}}}`

// batch is how many wakes one call of the gateway may bring.
const batch = 64

// Transport publishes wakes.
type Transport struct {
	cfg  Config
	conn *nats.Conn
	js   jetstream.JetStream
}

// New connects; a server that is away is waited for, as long as it takes.
func New(cfg Config) (*Transport, error) {
	for _, s := range cfg.Subjects {
		if !subject(s, true) {
			return nil, fmt.Errorf("subjects: %q is no pattern of subjects", s)
		}
	}
	opts := []nats.Option{nats.Name("rouse"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectBufSize(-1), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { sdk.Logger().Warn("nats", "error", err.Error()) })}
	if cfg.Credentials != "" {
		opts = append(opts, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(cfg.NKey)
		if err != nil {
			return nil, errors.New("nkey: the file holds no seed")
		}
		opts = append(opts, o)
	}
	if cfg.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if cfg.Certificate != "" || cfg.Key != "" {
		opts = append(opts, nats.ClientCert(cfg.Certificate, cfg.Key))
	}
	conn, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		// Its text may quote the URL, which may hold a password.
		return nil, errors.New("url, or the files that it needs, cannot be used")
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, errors.New("JetStream cannot be used")
	}
	return &Transport{cfg: cfg, conn: conn, js: js}, nil
}

// Close ends the connection.
func (t *Transport) Close() { t.conn.Close() }

// Health says whether the server is there.
func (t *Transport) Health() error {
	if s := t.conn.Status(); s != nats.CONNECTED {
		return fmt.Errorf("not connected to the server: %s", strings.ToLower(s.String()))
	}
	return nil
}

// ValidateTarget refuses what is no subject, or not an allowed one.
func (t *Transport) ValidateTarget(target json.RawMessage) error {
	_, err := t.subjectOf(target)
	return err
}

func (t *Transport) subjectOf(target json.RawMessage) (string, error) {
	var x struct {
		Subject string `json:"subject"`
	}
	if err := json.Unmarshal(target, &x); err != nil || !subject(x.Subject, false) {
		return "", errors.New("a nats target has a subject, without wildcards")
	}
	if len(t.cfg.Subjects) == 0 {
		return x.Subject, nil
	}
	for _, p := range t.cfg.Subjects {
		if matches(p, x.Subject) {
			return x.Subject, nil
		}
	}
	return "", errors.New("the transport's configuration does not allow this subject")
}

// Deliver publishes one wake and waits until a stream has it.
func (t *Transport) Deliver(ctx context.Context, d contract.Delivery) contract.Result {
	to, err := t.subjectOf(d.Target)
	if err != nil {
		return contract.Result{Outcome: contract.Permanent, Error: err.Error()}
	}
	m := nats.NewMsg(to)
	m.Data = d.Notification
	m.Header.Set("Content-Type", "application/json")
	m.Header.Set("Idempotency-Key", d.WakeID)
	m.Header.Set("Rouse-Service", d.Service)
	m.Header.Set("Rouse-Delivery-Attempt", strconv.Itoa(d.Attempt))
	if d.Signature != "" {
		m.Header.Set("Webhook-Signature", d.Signature)
	}
	// The stream drops what this attempt sends twice; a later attempt is a new
	// telling of the same wake, which somebody may have missed.
	_, err = t.js.PublishMsg(ctx, m, jetstream.WithMsgID(d.WakeID+"/"+strconv.Itoa(d.Attempt)))
	switch {
	case err == nil:
		return contract.Result{Outcome: contract.Accepted}
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return contract.Result{Outcome: contract.Retry, Error: "no stream takes the subject"}
	case errors.Is(err, nats.ErrMaxPayload):
		return contract.Result{Outcome: contract.Permanent, Error: "the notification is greater than the server takes"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return contract.Result{Outcome: contract.Retry, Error: "the server did not acknowledge in time"}
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return contract.Result{Outcome: contract.Retry, Error: "not connected to the server"}
	}
	return contract.Result{Outcome: contract.Retry, Error: "the server did not take it"}
}

// subject says whether s can be published to, or is a pattern if those are
// allowed.
func subject(s string, pattern bool) bool {
	if s == "" || len(s) > 256 || strings.ContainsAny(s, " \t\r\n\x00") {
		return false
	}
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return false
		case t == "*" && pattern, t == ">" && pattern && i == len(tokens)-1:
		case strings.ContainsAny(t, "*>"):
			return false
		}
	}
	return !strings.HasPrefix(s, "$") // the server's own: its API, key-value and object buckets
}

// matches compares a subject with a pattern token by token.
func matches(pattern, s string) bool {
	p, q := strings.Split(pattern, "."), strings.Split(s, ".")
	for i, t := range p {
		if t == ">" {
			return len(q) > i
		}
		if i >= len(q) || t != "*" && t != q[i] {
			return false
		}
	}
	return len(p) == len(q)
}

// Plugin is the transport as a plugin.
func Plugin() sdk.Transport {
	var mu sync.Mutex
	var current *Transport
	use := func() (*Transport, error) {
		mu.Lock()
		defer mu.Unlock()
		if current == nil {
			return nil, errors.New("the transport is not configured")
		}
		return current, nil
	}
	return sdk.Transport{
		Type: "nats", Version: "v1", Signed: true, MaxBatch: batch, TargetSchema: json.RawMessage(schema), ConfigSchema: json.RawMessage(configSchema),
		Configure: func(_ context.Context, raw json.RawMessage) error {
			var c Config
			if err := json.Unmarshal(raw, &c); err != nil {
				return errors.New("the settings cannot be read")
			}
			t, err := New(c)
			if err != nil {
				return err
			}
			mu.Lock()
			old := current
			current = t
			mu.Unlock()
			if old != nil {
				old.Close()
			}
			return nil
		},
		ValidateTarget: func(_ context.Context, target json.RawMessage) error {
			t, err := use()
			if err != nil {
				return err
			}
			return t.ValidateTarget(target)
		},
		Deliver: func(ctx context.Context, d contract.Delivery) contract.Result {
			t, err := use()
			if err != nil {
				return contract.Result{Outcome: contract.Retry, Error: err.Error()}
			}
			return t.Deliver(ctx, d)
		},
		Health: func(context.Context) error {
			t, err := use()
			if err != nil {
				return err
			}
			return t.Health()
		},
		Close: func() {
			if t, err := use(); err == nil {
				t.Close()
			}
		},
	}
}
