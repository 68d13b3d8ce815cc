// Package client is the Go client of the HTTP API, generated from
// ../openapi-3.0.yaml by `make generate`. Paths may hold slashes: they are
// escaped and the server takes them as they were.
//
// It promises to have one method for each operation and to import nothing of
// the gateway.
package client

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config config.yaml ../openapi-3.0.yaml
