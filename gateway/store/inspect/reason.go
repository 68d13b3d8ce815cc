package inspect

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rouse-run/rouse/gateway/store/migrate"
)

// reason puts an error of the driver into words without the address and user that the driver's own text holds.
func reason(err error) string {
	var pgErr *pgconn.PgError
	var netErr net.Error
	var opErr *net.OpError
	var parseErr *pgconn.ParseConfigError
	switch {
	case errors.As(err, &pgErr):
		return pgErr.Message + " (SQLSTATE " + pgErr.Code + ")"
	case errors.As(err, &parseErr):
		return "the URL cannot be read"
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout():
		return "no answer in time"
	case errors.As(err, &opErr):
		return opErr.Err.Error()
	default:
		return "the connection failed"
	}
}

func detailOf(err error) string {
	if e, ok := errors.AsType[*migrate.Error](err); ok {
		return e.Detail
	}
	return reason(err)
}

func hintOf(err error) string {
	if e, ok := errors.AsType[*migrate.Error](err); ok {
		return e.Hint
	}
	return ""
}
