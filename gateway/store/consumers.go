package store

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Consumer is a mutex as its owner may see it.
type Consumer struct {
	Name      string          `json:"consumerId"`
	Kind      string          `json:"kind"`
	EntityURL *string         `json:"entityUrl"`
	CreatedBy *string         `json:"-"` // of the entity
	State     string          `json:"state" enum:"idle,waking,claimed,expired,stopped"`
	Paused    bool            `json:"paused"`
	Epoch     int64           `json:"epoch"`
	WakeID    *string         `json:"wakeId"`
	Holder    *string         `json:"holder"`
	RunnerID  *string         `json:"runnerId"`
	LeaseMS   *int64          `json:"lease_ms" doc:"What is left of the lease, by the database's clock."`
	Pending   bool            `json:"pending"`
	Streams   json.RawMessage `json:"streams"`
}

// ConsumerGet reads a mutex by name; [ErrNoRow] when there is none.
func (s *Store) ConsumerGet(ctx context.Context, service int32, name string) (Consumer, error) {
	var c Consumer
	var streams []byte
	err := s.row(ctx, func(r pgx.Row) error {
		return r.Scan(&c.Name, &c.Kind, &c.EntityURL, &c.CreatedBy, &c.State, &c.Paused, &c.Epoch, &c.WakeID, &c.Holder, &c.RunnerID,
			&c.LeaseMS, &c.Pending, &streams)
	}, `select * from rouse.consumer_get($1, $2::text)`, service, name)
	c.Streams = streams
	return c, err
}
