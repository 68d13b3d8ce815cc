// Package pluginhost owns the processes that transports and auth hooks run in:
// it finds, verifies, starts, supervises, replaces and ends them, and makes
// them look like the interfaces of plugins/contract.
//
// It promises that only bytes with the pinned checksum are executed, that a
// plugin which crashes, hangs, floods or lies costs its own calls and nothing
// else, that each call ends by its deadline, that a failed auth hook is an
// error and never an opinion, that a changed configuration drops no delivery,
// and that no process, socket or directory outlives the gateway. It knows
// nothing of HTTP, of the database, and of what the plugins do.
package pluginhost
