// Package sdk is what a plugin is written with: fill in a [Transport] or an
// [AuthHook] and serve it from main.
//
// It promises that the process ends with its gateway, that a panic in one call
// costs that call only, that no message is greater than the contract allows,
// and that what is logged reaches the gateway's log. It knows nothing of the
// gateway but the contract.
package sdk
