// Package pools plays people and machines that share work: worker pools under a
// crowd, targets that give way to each other, and entities that move, against
// whole gateways. It holds tests only.
package pools
