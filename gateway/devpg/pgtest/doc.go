// Package pgtest owns databases for tests: one per test, cloned from a migrated template on a server that all test
// processes of a user share, or a whole server of a test's own for faults.
//
// It promises that a clone costs tens of milliseconds, that tests never see each other's rows, that the shared server
// stops by itself a minute after its last test process, and that the database of a failed test is kept and its URL
// printed. The shared server does not sync to disk; a server of a test's own does.
//
// It must not be imported by anything but tests.
package pgtest
