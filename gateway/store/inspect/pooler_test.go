package inspect

import (
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// pooler relays connections to dsn and, as poolers do, tells each client of a backend process that does not exist. It
// gives the URL through it.
func pooler(t *testing.T, dsn string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			network, address := upstream(cfg)
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				continue
			}
			go relay(client, server)
		}
	}()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable"
	return u.String()
}

func upstream(cfg *pgx.ConnConfig) (network, address string) {
	if strings.HasPrefix(cfg.Host, "/") {
		return "unix", cfg.Host + "/.s.PGSQL." + strconv.Itoa(int(cfg.Port))
	}
	return "tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

func relay(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	from := pgproto3.NewFrontend(server, server)
	to := pgproto3.NewBackend(client, client)
	for {
		msg, err := from.Receive()
		if err != nil {
			return
		}
		if key, ok := msg.(*pgproto3.BackendKeyData); ok {
			msg = &pgproto3.BackendKeyData{ProcessID: key.ProcessID + 1, SecretKey: key.SecretKey}
		}
		to.Send(msg)
		if to.Flush() != nil {
			return
		}
	}
}
