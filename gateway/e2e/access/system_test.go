package access

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// Who comes in by an endpoint or a certificate is a system principal, which passes
// every check, only where the settings say that it may be; a token file's word needs
// no more.
func TestSystemPrincipalsComeInWhereTheyMay(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "system:framework")
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"verdict":"allow","principal":{"kind":"system","id":"framework"},"cache_for_ms":60000}`)
	}))
	t.Cleanup(endpoint.Close)
	for _, inside := range []bool{false, true} {
		for _, may := range []bool{false, true} {
			t.Run(fmt.Sprintf("in_process %t allow_system %t", inside, may), func(t *testing.T) {
				t.Parallel()
				ca := newAuthority(t)
				_, cert, key := ca.issue(t, "gateway", 2)
				gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
					c.Insecure, c.TokensFile, c.TLSCert, c.TLSKey, c.TLSClientCA = false, file, cert, key, ca.file(t)
					c.Auth.Hooks = []config.AuthHook{{HTTP: &config.HTTPHook{URL: endpoint.URL, Headers: []string{"Cookie"}, AllowSystem: may, InProcess: inside}}}
					if may {
						c.Auth.Hooks = append(c.Auth.Hooks, config.AuthHook{MTLS: &config.MTLSHook{Rules: []config.MTLSRule{{From: "cn", Kind: "system"}}, AllowSystem: true, InProcess: inside}})
					}
				}})
				const systemsOnly = "/_electric/plugins"
				must(t, 200, client(t, ca), "GET", gw.URL+systemsOnly, "", bearer(tokens["system:framework"])...)
				want := 401
				if may {
					want = 200
					by, _, _ := ca.issue(t, "framework", 3)
					must(t, 200, client(t, ca, by), "GET", gw.URL+systemsOnly, "")
				}
				for range 2 {
					must(t, want, client(t, ca), "GET", gw.URL+systemsOnly, "", "Cookie", "session=x")
				}
			})
		}
	}
}
