// Package streams serves the Durable Streams protocol over HTTP: create,
// append, close, delete, HEAD, catch-up, long-poll and SSE, at the root and
// below /v1/stream.
//
// It promises that every malformed path, header, query or body is answered by a
// coded 4xx without any effect, that a reader misses nothing and sees nothing
// twice, that a slow reader costs only itself, and that memory is bounded: by
// request, by page, and over all bodies in flight. It knows nothing of SQL, of
// how tokens are made, or of the control plane's routes.
package streams
