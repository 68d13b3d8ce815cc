// Package secrets runs whole cycles of work over HTTP and then looks for the
// tokens that were handed out in every place they must not be: every column of
// every table, the write-ahead log, the gateway's log, its metrics.
//
// It holds tests only.
package secrets
