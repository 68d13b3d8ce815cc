// Package plugintest is the conformance kit of plugins: it starts a program the
// way a gateway does, uses and mistreats it, and says where it breaks the
// contract.
//
// It promises that each case is bounded in time, that nothing it starts is left
// behind, and that it sends wakes only to the target it is given. It needs
// nothing of the gateway: an author's own tests can call [Run].
package plugintest
