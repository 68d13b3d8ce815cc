package auth

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Near tells the pages and clients of this machine from others, for a gateway
// that asks for no credentials. A web page that somebody opens sends its requests
// from this machine too, so the address they come from says nothing; what a
// browser cannot hide is the page's origin and the name under which it found
// the gateway.
type Near struct {
	hosts    map[string]bool
	literals bool
}

// NewNear takes the gateway's public URL and listening address, whose hosts
// count as near like localhost and loopback addresses do. With anywhere, every
// host that is an address and no name does: a name can be made to point here.
func NewNear(publicURL, listen string, anywhere bool) *Near {
	n := &Near{hosts: map[string]bool{}, literals: anywhere}
	if u, err := url.Parse(publicURL); err == nil && u.Hostname() != "" {
		n.hosts[bareHost(u.Host)] = true
	}
	if host := bareHost(listen); host != "" {
		n.hosts[host] = true
	}
	return n
}

// Check fails with ORIGIN_FORBIDDEN for a request that another site's page may
// have sent, or that came under a name which is not known.
func (n *Near) Check(r *http.Request) error {
	if !n.host(bareHost(r.Host)) {
		return farAway("the name it was sent to is not known here")
	}
	switch from := r.Header["Origin"]; len(from) {
	case 0:
		return nil // no browser, or a page's own read
	case 1:
		u, err := url.Parse(from[0])
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && n.host(bareHost(u.Host)) {
			return nil
		}
	}
	return farAway("it comes from another site's page")
}

func farAway(why string) error {
	return problem.New(problem.OriginForbidden, "This gateway asks for no credentials, so it serves this machine only: the request is refused because "+why+
		". Set ROUSE_PUBLIC_URL to the URL that the gateway is reached under, or use `rouse serve` with credentials.")
}

// host says whether a host counts as near.
func (n *Near) host(h string) bool {
	if h == "" {
		return false
	}
	if n.hosts[h] || h == "localhost" || strings.HasSuffix(h, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(h)
	return err == nil && (n.literals || ip.Unmap().IsLoopback())
}

// bareHost is a host without port, brackets and spelling.
func bareHost(h string) string {
	if host, _, err := net.SplitHostPort(h); err == nil {
		h = host
	} else {
		h = strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}
