package server

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/store"
)

// frequent are the last segments of what runs for every piece of work; none of it is written to the audit log.
var frequent = map[string]bool{"send": true, "claim": true, "heartbeat": true, "ack": true, "release": true, "acquire": true, "callback": true}

// withOrigin lets the audit rows of a request that may change the control plane say where it came from: the peer's
// address, which is a proxy's behind one, and the request's id, by which the proxy's own log tells more.
func withOrigin(r *http.Request, path string) *http.Request {
	switch r.Method {
	case http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete:
	default:
		return r
	}
	if !strings.HasPrefix(path, "/_electric/") && !strings.Contains(path, "/__ds/") || frequent[path[strings.LastIndexByte(path, '/')+1:]] ||
		strings.HasPrefix(path, "/_electric/wake-callbacks/") {
		return r
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = ""
	}
	origin, err := json.Marshal(map[string]string{"address": address, "request": obs.RequestID(r.Context())})
	if err != nil {
		return r
	}
	return r.WithContext(store.WithOrigin(r.Context(), string(origin)))
}
