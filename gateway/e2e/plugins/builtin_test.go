package plugins

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rouse-run/rouse/plugins/plugintest"
)

// The transports that rouse has conform, each in a process of its own.
func TestBuiltinTransportsConform(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	for name, c := range map[string]struct{ config, target string }{
		// Nobody listens there: a delivery is to be tried again.
		"webhook": {`{"allow_private":true}`, `{"type":"webhook","url":"http://127.0.0.1:1/"}`},
		"nats":    {fmt.Sprintf(`{"url":%q}`, s.ClientURL()), ``},
		"exec":    {`{"commands":{"ok":{"argv":["/bin/cat"],"parallel":64}}}`, `{"type":"exec","command":"ok"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := plugintest.Options{Path: path, Args: []string{"plugin-serve", name}, Config: json.RawMessage(c.config), Target: json.RawMessage(c.target)}
			ok := plugintest.Run(t.Context(), opts, func(r plugintest.Result) {
				if r.Err != nil {
					t.Errorf("%s: %v", r.Name, r.Err)
				}
			})
			if !ok {
				t.Error("it does not conform")
			}
		})
	}
}
