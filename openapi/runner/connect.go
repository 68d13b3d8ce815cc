package runner

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rouse-run/rouse/openapi/client"
)

// Client gives the generated client for the server: with its credentials, its service, and the query of its address.
func (s Server) Client() (*client.Client, error) {
	u, err := url.Parse(s.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("the address of a server must be an http or https URL")
	}
	query := u.Query()
	if s.Service != "" {
		query.Set("service", s.Service)
	}
	u.RawQuery, u.Fragment = "", ""
	doer := s.HTTP
	if doer == nil {
		doer = &http.Client{Transport: transport()}
	}
	return client.NewClient(strings.TrimRight(u.String(), "/"), client.WithHTTPClient(doer),
		client.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
			if len(query) > 0 {
				q := req.URL.Query()
				for k, v := range query {
					q[k] = v
				}
				req.URL.RawQuery = q.Encode()
			}
			if s.Token != "" {
				req.Header.Set("Authorization", "Bearer "+s.Token)
			}
			if s.Principal != "" {
				req.Header.Set("Electric-Principal", s.Principal)
			}
			return nil
		}))
}

// transport is net/http's usual one with more idle connections: claims of several entities run side by side.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}
