package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// plain makes a request of a route that the generated client has no call for. path is escaped, with its query.
func (c *caller) plain(method, path string, body any) func(context.Context) (*http.Response, error) {
	return func(ctx context.Context) (*http.Response, error) {
		var in io.Reader
		if body != nil {
			raw, err := json.Marshal(body)
			if err != nil {
				return nil, err
			}
			in = bytes.NewReader(raw)
		}
		req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.Client.Server, "/")+path, in)
		if err != nil {
			return nil, err
		}
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		for _, edit := range c.RequestEditors {
			if err := edit(ctx, req); err != nil {
				return nil, err
			}
		}
		return c.Client.Client.Do(req)
	}
}
