package control

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOnlyPluginsAreInspected(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"GET /_electric/plugins": true, "HEAD /_electric/plugins/": true, "GET /_electric/plugins?service=a": true, "GET /_electric/plugins/auth-opa/log": true,
		"GET /_electric/plugins/%C3%BC/log": true,
		"POST /_electric/plugins":           false, "GET /_electric/pluginsX": false, "GET /_electric/transports": false, "GET /%5Felectric/plugins/a": false,
		"GET /_electric%2Fplugins/a": false, "GET /v1/stream/_electric/plugins": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		if InspectsPlugins(httptest.NewRequestWithContext(t.Context(), method, path, nil)) != want {
			t.Errorf("%s: not %t", request, want)
		}
	}
}
