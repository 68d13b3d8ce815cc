package access

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// BenchmarkWhoAndMay is what a request costs by who judges it, where, and whether
// the answer is remembered: a read of the caller's runners, with the database's
// answer in it, which is the same for all.
func BenchmarkWhoAndMay(b *testing.B) {
	idp := signin.New(b)
	file, tokens := tokenFile(b, "user:kyle")
	rules := filepath.Join(b.TempDir(), "policy.rego")
	if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, tc := range []struct {
		name           string
		inside, opa    bool
		token, forgets bool
	}{
		{name: "tokens", token: true}, {name: "tokens-in-process", token: true, inside: true},
		{name: "jwt"}, {name: "jwt-new", forgets: true}, {name: "jwt-new-in-process", forgets: true, inside: true},
		{name: "jwt-opa", opa: true}, {name: "jwt-opa-new", opa: true, forgets: true}, {name: "jwt-opa-new-in-process", opa: true, forgets: true, inside: true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			gw := servertest.Start(b, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
				hook := idp.Hook()
				hook.JWT.InProcess = tc.inside
				c.Insecure = false
				c.Auth.Hooks = []config.AuthHook{{Tokens: &config.TokensHook{File: file, InProcess: tc.inside}}, hook}
				if !tc.token {
					c.Auth.Hooks = c.Auth.Hooks[1:]
				}
				if tc.opa {
					c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: rules, Deadline: 5 * time.Second, InProcess: tc.inside}}}
				}
			}})
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			header := "Bearer " + tokens["user:kyle"]
			if !tc.token {
				header = "Bearer " + idp.Token(b, "kyle", time.Hour)
			}
			took := make([]time.Duration, 0, b.N)
			for i := 0; b.Loop(); i++ {
				if tc.forgets { // somebody whom nobody has seen yet
					header = "Bearer " + idp.Token(b, "kyle", time.Hour, "jti", fmt.Sprint(i), "role", fmt.Sprint(i))
				}
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, gw.URL+"/_electric/runners", nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Authorization", header)
				began := time.Now()
				resp, err := client.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
				if resp.Body.Close(); resp.StatusCode != http.StatusOK {
					b.Fatal(resp.Status)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
