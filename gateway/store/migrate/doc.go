// Package migrate owns the way from any older state of the database to the one this binary needs: the numbered
// migrations of package migrations, then the functions of package sql.
//
// It promises that of several migrators only one works at a time (the others poll, bounded, and never hold a snapshot
// that would block a concurrent index build), that a migration and the record of it commit together, that functions
// change all at once or not at all, and that a binary never takes a database of a newer one back. After a failure it
// can say in words where the database stands.
//
// It must not know what the tables mean. It needs a direct connection: a pooler in transaction mode breaks the lock.
package migrate
