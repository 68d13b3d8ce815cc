// Package shape serves the tables that UIs sync, in the protocol of Electric's
// clients: a snapshot of the rows a caller may see, then every change of them,
// by long-poll or SSE.
//
// It owns the Shape endpoint, the definitions of the tables and their columns,
// and the ring: the latest changes of those tables as one replication session
// reads them from the log. The session runs only while somebody asks.
//
// It promises: a change is told to whoever holds the row and may read it, once,
// in commit order, with the id of its transaction; a row that leaves a shape is
// taken back; what a caller may not read never leaves the gateway; and where
// that cannot be kept (the ring does not reach back far enough, the gateway or
// the database restarted, a grant of the caller changed) the client is told to
// fetch its shape anew. A client's state is in its handle and offset, so that
// any gateway goes on where another stopped.
//
// It knows HTTP and the rows of the log, and nothing of Postgres' protocols,
// streams, claims or what rows mean.
package shape
