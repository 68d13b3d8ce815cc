package shape

import (
	"context"
	"net/http"
	"time"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/store"
)

// nothing is a database without rows, with one service, for everybody.
type nothing struct{}

func (nothing) ShapeRead(_ context.Context, _ string, _ []any, begin func(store.ShapeSnapshot) error, _ func([][]byte) error) error {
	return begin(store.ShapeSnapshot{XMin: 10, XMax: 10, LSN: 1, At: time.UnixMilli(1)})
}

func (nothing) ShapePosition(context.Context) (uint64, error) { return 0, nil }

func (nothing) ShapeAccess(context.Context, int32, []string) (store.ShapeSnapshot, map[string]store.ShapeReaders, error) {
	return store.ShapeSnapshot{XMax: 10, XMin: 10}, nil, nil
}

func (nothing) ShapePools(context.Context, int32, string, []string) (store.ShapeSnapshot, []string, error) {
	return store.ShapeSnapshot{XMax: 10, XMin: 10}, nil, nil
}
func (nothing) ShapeTypes(context.Context, int32, string, []string) (store.ShapeSnapshot, []string, error) {
	return store.ShapeSnapshot{XMax: 10, XMin: 10}, nil, nil
}

func (nothing) ShapeLapsed(context.Context, int32, string, time.Time) (bool, error) {
	return false, nil
}
func (nothing) ID(context.Context, string) (int32, error)          { return 1, nil }
func (nothing) Authenticate(*http.Request) (auth.Principal, error) { return auth.DevLocal, nil }
func (nothing) Seen(context.Context, int32, auth.Principal) error  { return nil }
