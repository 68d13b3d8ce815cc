package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	// discoverTimeout bounds a serve endpoint's answer.
	discoverTimeout = 5 * time.Second
	// maxManifest bounds a manifest in bytes.
	maxManifest = 1 << 20
)

// HTTPDiscoverer asks serve endpoints over HTTP. It follows no redirect, uses
// no proxy, and lets check judge every address before it connects, so that a
// type's registration is no way into the gateway's network.
type HTTPDiscoverer struct{ client *http.Client }

// NewDiscoverer makes a discoverer; check may be nil.
func NewDiscoverer(check func(network, address string, c syscall.RawConn) error) *HTTPDiscoverer {
	return &HTTPDiscoverer{&http.Client{
		Timeout: discoverTimeout,
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: discoverTimeout, Control: check}).DialContext,
			ResponseHeaderTimeout: discoverTimeout,
			TLSHandshakeTimeout:   discoverTimeout,
			DisableKeepAlives:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Discover implements [Discoverer]: PUT without a body, answered by a manifest.
func (d *HTTPDiscoverer) Discover(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, fmt.Errorf("the serve endpoint answered status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err == nil && len(body) > maxManifest {
		err = errors.New("the manifest is too large")
	}
	return body, err
}
