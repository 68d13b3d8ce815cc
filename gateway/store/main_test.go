package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dsn string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}
