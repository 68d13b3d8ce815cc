package store_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// A statement that hangs is given up by the database, which says so, before the
// caller stops waiting: nothing runs on there for nobody.
func TestAStatementThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), store.Options{DSN: db.DSN, CallTimeout: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	if _, err := st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "a", ContentType: "application/json", Count: 1}); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select from rouse.streams where path = 'a' for update`); err != nil {
		t.Fatal(err)
	}
	_, err = st.StreamTrim(t.Context(), 1, "a", nil, false, "")
	if problem.CodeOf(err) != problem.DatabaseTimeout || !strings.Contains(err.Error(), "57014") {
		t.Fatalf("%v", err)
	}
	// The clean-up has time of its own.
	if _, err := st.RetentionAdopt(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	var running int
	if err := tx.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and query like '%stream_trim%' and state = 'active'
		and pid <> pg_backend_pid()`).Scan(&running); err != nil || running != 0 {
		t.Fatalf("%d statements run on, %v", running, err)
	}
}

// refusing is a pooler that takes no settings with a connection.
func refusing(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer client.Close()
				b := pgproto3.NewBackend(client, client)
				first, err := b.ReceiveStartupMessage()
				start, ok := first.(*pgproto3.StartupMessage)
				if err != nil || !ok {
					return
				}
				if _, set := start.Parameters["statement_timeout"]; set {
					b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter"})
					_ = b.Flush()
					return
				}
				server, err := net.Dial(network, address)
				if err != nil {
					return
				}
				defer server.Close()
				raw, err := start.Encode(nil)
				if err != nil {
					return
				}
				if _, err := server.Write(raw); err != nil {
					return
				}
				var both sync.WaitGroup
				both.Go(func() { _, _ = io.Copy(client, server); client.Close() })
				both.Go(func() { _, _ = io.Copy(server, client); server.Close() })
				both.Wait()
			})
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable"
	return u.String()
}

func TestAPoolerWithoutSettingsIsNoObstacle(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), store.Options{DSN: refusing(t, pgtest.New(t).DSN)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for range 3 {
		if err := st.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
