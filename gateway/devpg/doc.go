// Package devpg owns a private Postgres server for `rouse dev` and for tests.
//
// It finds (or downloads) the Postgres programs, initialises a cluster in a directory of its own, starts the server as
// an unprivileged user, and promises that the server never outlives its parent for long: a small watchdog holds a pipe
// whose end-of-file, which the kernel delivers even after kill −9, stops the server. A later start on the same
// directory recovers; a second live start on it is refused with the pid of the first.
//
// The server listens on a Unix socket in a directory only its owner may enter and on one loopback TCP port, where a
// generated password is required. It is set up for logical replication.
//
// It must not know what Rouse stores: no schema, no SQL, no HTTP.
package devpg
