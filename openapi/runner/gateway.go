package runner

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// gateway is what the loop asks of one service of one gateway. Refusals are *call.Error. Every call but tail ends by the
// deadline of its context.
type gateway interface {
	register(ctx context.Context, reg Registration) error
	lookup(ctx context.Context) (registered, error)
	// seal tells the public key that wakes are sealed to; empty = none.
	seal(ctx context.Context, public string) error
	// alive extends the runner's liveness lease; offset is its cursor.
	// It answers the pools whose active member the runner is.
	alive(ctx context.Context, lease time.Duration, offset string) ([]membership, error)
	// memberships lists the pools that the runner is in or invited to; join makes it an active member of one.
	memberships(ctx context.Context) ([]membership, error)
	join(ctx context.Context, pool, token string) error

	// tail opens the live stream, read the pages before its end.
	tail(ctx context.Context, path, offset, cursor string) (*http.Response, error)
	read(ctx context.Context, path, offset string) (page, error)
	// append writes JSON values at once, as the producer's next sequence.
	append(ctx context.Context, path string, body []byte, token string, p producer) error

	// claim takes the lease of a wake by the runner's claim route. granted is false when there is nothing to do any more.
	claim(ctx context.Context, entry json.RawMessage, claimID string) (g grant, granted bool, err error)
	// acquire asks the wake's callback: it takes the lease, or answers its holder the write token.
	acquire(ctx context.Context, wakeID string, epoch int64, token, claimID string) (grant, error)
	heartbeat(ctx context.Context, h hold) (grant, error)
	ack(ctx context.Context, h hold, acks []Position) (grant, error)
	// release acks and gives the lease back; failure, when not nil, records the run as failed.
	release(ctx context.Context, h hold, acks []Position, failure *string) (nextWake bool, err error)
}

// registered is what the gateway knows of the runner.
type registered struct {
	WakeStream string
	Born       string
	Enabled    bool
	// WakeKey is the public key that its wakes are sealed to; empty = none.
	WakeKey string
}

// page is a part of a stream.
type page struct {
	messages []json.RawMessage
	next     string
	// end: there is nothing more now.
	end bool
}

// producer identifies an append, so that a repeat lands once.
type producer struct {
	id    string
	epoch int64
	seq   int64
}

// hold names a lease that was taken.
type hold struct {
	consumer string
	wakeID   string
	epoch    int64
	token    string
}

// grant is an answer about a lease. Members an answer does not have are zero.
type grant struct {
	lease        time.Duration
	token        string // of the holder: for heartbeats, acks and the release
	writeToken   string
	notification json.RawMessage
	// release: the gateway wants the lease back.
	release bool
}

// Position is a stream's path and an offset in it.
type Position struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// Notification is what a wake says.
type Notification struct {
	ConsumerID  string        `json:"consumerId"`
	Epoch       int64         `json:"epoch"`
	WakeID      string        `json:"wakeId"`
	StreamPath  string        `json:"streamPath"`
	Streams     []StreamState `json:"streams"`
	TriggeredBy []string      `json:"triggeredBy"`
	Callback    string        `json:"callback"`
	ClaimToken  string        `json:"claimToken"`
	Entity      *Entity       `json:"entity"`
}

// StreamState is a stream of the claim: where it ended when the wake was made, and how far it had been acked.
type StreamState struct {
	Path   string `json:"path"`
	Offset string `json:"offset"`
	Acked  string `json:"ackedOffset"`
}

// Entity is what the wake says of the entity.
type Entity struct {
	URL       string            `json:"url"`
	Type      string            `json:"type"`
	Status    string            `json:"status"`
	Streams   map[string]string `json:"streams"`
	Tags      map[string]string `json:"tags"`
	SpawnArgs json.RawMessage   `json:"spawnArgs"`
	CreatedBy string            `json:"createdBy"`
}
