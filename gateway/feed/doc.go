// Package feed turns the write-ahead log of one Postgres database into the
// gateway's signals. It owns the replication connection, the slots and their
// positions, and the Hub, where readers of streams wait for more.
//
// A transaction that changed streams carries one logical message that names
// them (see Notice); the feed reads these messages through pgoutput and hands
// them on three ways: every notice to the Hub, actionable ones to the
// RouterSink on the one gateway that holds the router's durable slot, due
// deliveries to the DeliverySink on every gateway.
//
// Promises: the socket is drained whatever the consumers do, because a
// replication client that stops reading can hang the server's checkpointer;
// nothing is queued without a bound (consumers get coalesced state, or are told
// to look in the tables when the bound was reached); a notice of a transaction
// that rolled back is never seen; a gap in the log is announced, to tails by
// Hub.Resync and to sinks by their Gap methods. A notice can come before its
// transaction is visible to a new snapshot: it carries the tail, and whoever
// reads waits until the tables show it.
//
// The package knows Postgres and nothing of HTTP, consumers, claims or what a
// wake means. It is the only importer of pglogrepl.
package feed
