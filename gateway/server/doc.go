// Package server is the composition root: it builds all parts of a gateway, starts them in order, and drains them in the
// opposite one.
//
// It promises that a gateway that is draining says so on /readyz, takes no new connection, ends its open streams with
// what lets their readers resume elsewhere, finishes the requests in flight, and then stops its workers; all within the
// configured time. It may import everything and only package cli and tests may import it.
package server
