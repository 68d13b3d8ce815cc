package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// DeliveryUncertain says whether an earlier attempt to deliver a wake was never
// answered, and records it as unknown. Asked again for the same attempt, it
// answers the same.
func (s *Store) DeliveryUncertain(ctx context.Context, d DueDelivery) (bool, error) {
	var uncertain bool
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&uncertain) },
		`select rouse.delivery_uncertain($1, $2, $3)`, d.Service, d.WakeID, d.Attempt)
	return uncertain, err
}
