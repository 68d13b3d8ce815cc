// Package fault breaks things under load and counts what is left: gateways and
// runners as processes that are killed, a Postgres that is restarted, a
// replication slot that is dropped.
//
// It holds tests only. Each case demands that every acknowledged append is
// there once and in order, that epochs rise and one claim lives at most, that
// no wake is lost, and that enough work was done for that to mean something.
// ROUSE_FAULT_SECONDS makes the load last longer. What takes a standby, a clock of
// its own or a small disk is behind the build tag faults: `make test-faults`.
package fault
