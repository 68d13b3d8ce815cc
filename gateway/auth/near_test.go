package auth

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
)

func TestWhatIsNear(t *testing.T) {
	t.Parallel()
	dev := NewNear("https://rouse.example.com/base", "127.0.0.1:4437", false)
	named := NewNear("http://127.0.0.1:4437", "devbox:4437", true)
	open := NewNear("http://127.0.0.1:4437", "0.0.0.0:4437", true)
	for _, tc := range []struct {
		name         string
		near         *Near
		host, origin string
		ok           bool
	}{
		{"curl", dev, "127.0.0.1:4437", "", true},
		{"curl by name", dev, "localhost:4437", "", true},
		{"curl, IPv6", dev, "[::1]:4437", "", true},
		{"curl, no port", dev, "[::1]", "", true},
		{"curl, spelled otherwise", dev, "LOCALHOST.:4437", "", true},
		{"curl, mapped", dev, "[::ffff:127.0.0.1]:4437", "", true},
		{"through the tunnel", dev, "rouse.example.com", "", true},
		{"its own page", dev, "localhost:4437", "http://localhost:4437", true},
		{"its own page through the tunnel", dev, "rouse.example.com", "https://rouse.example.com", true},
		{"a page being developed here", dev, "localhost:4437", "http://app.localhost:3000", true},
		{"a page by address", dev, "localhost:4437", "http://127.0.0.1:5173", true},

		{"another site", dev, "localhost:4437", "https://evil.example", false},
		{"another site that sounds like it", dev, "localhost:4437", "https://localhost.evil.example", false},
		{"another site with a user", dev, "localhost:4437", "https://localhost@evil.example", false},
		{"below the public host", dev, "localhost:4437", "https://evil.rouse.example.com", false},
		{"a file or a sandbox", dev, "localhost:4437", "null", false},
		{"an extension", dev, "localhost:4437", "chrome-extension://abc", false},
		{"an empty origin", dev, "localhost:4437", "", true},
		{"a broken origin", dev, "localhost:4437", "http://[", false},
		{"a name made to point here", dev, "evil.example:4437", "", false},
		{"and its page", dev, "evil.example:4437", "http://evil.example:4437", false},
		{"an address of the network", dev, "192.168.1.2:4437", "", false},
		{"an unspecified address", dev, "0.0.0.0:4437", "", false},
		{"no name", dev, "", "", false},

		{"open: by address", open, "192.168.1.2:4437", "", true},
		{"open: its own page by address", open, "192.168.1.2:4437", "http://192.168.1.2:4437", true},
		{"open: a name made to point here", open, "evil.example:4437", "", false},
		{"open: another site", open, "192.168.1.2:4437", "https://evil.example", false},
		{"open: the name it listens at", named, "devbox:4437", "http://devbox:4437", true},
	} {
		r := request()
		r.Host = tc.host
		if tc.origin != "" {
			r.Header.Set("Origin", tc.origin)
		}
		err := tc.near.Check(r)
		if (err == nil) != tc.ok || err != nil && (problem.CodeOf(err) != problem.OriginForbidden || !strings.Contains(err.Error(), "ROUSE_PUBLIC_URL") || strings.Contains(err.Error(), "evil")) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	r := request("Origin", "http://localhost", "Origin", "https://evil.example")
	r.Host = "localhost"
	if dev.Check(r) == nil {
		t.Error("two origins pass")
	}
}

// Credentials that no page can guess open the gateway from anywhere.
func TestCredentialsComeFromAnywhere(t *testing.T) {
	t.Parallel()
	near := NewNear("http://127.0.0.1:4437", "127.0.0.1:4437", false)
	dev, serve := New(Config{Insecure: true, Near: near, Hooks: []contract.AuthHook{tokens}}), New(Config{Near: near, Hooks: []contract.AuthHook{tokens}})
	for _, tc := range []struct {
		name   string
		chain  *Chain
		header []string
		who    string
		admit  problem.Code
	}{
		{"dev, no credentials", dev, nil, "ORIGIN_FORBIDDEN", problem.OriginForbidden},
		{"dev, a name is no credential", dev, []string{"electric-principal", "user:kyle"}, "ORIGIN_FORBIDDEN", problem.OriginForbidden},
		{"dev, a token", dev, []string{"Authorization", "Bearer user:kyle"}, "user:kyle", ""},
		{"dev, a wrong token", dev, []string{"Authorization", "Bearer junk"}, "UNAUTHENTICATED", problem.Unauthenticated},
		{"serve, no credentials", serve, nil, "UNAUTHORIZED", ""},
		{"serve, a token", serve, []string{"Authorization", "Bearer user:kyle"}, "user:kyle", ""},
	} {
		r := request(append(tc.header, "Origin", "https://app.example")...)
		r.Host = "127.0.0.1:4437"
		p, err := tc.chain.Authenticate(r)
		got := p.Key()
		if err != nil {
			got = string(problem.CodeOf(err))
		}
		if got != tc.who {
			t.Errorf("%s: %s", tc.name, got)
		}
		if err := tc.chain.Admit(r); problem.CodeOf(err) != tc.admit || (err == nil) != (tc.admit == "") {
			t.Errorf("%s: admitted with %v", tc.name, err)
		}
	}
	if r := request(); New(Config{Insecure: true}).Admit(r) != nil || r.Method != http.MethodGet {
		t.Error("without Near somebody is refused")
	}
}
