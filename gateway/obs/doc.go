// Package obs owns what a gateway tells of itself: structured logs, its own Prometheus registry, the middleware around
// every request, and health with coded reasons.
//
// It promises that known secrets never reach a log, that label values come from fixed sets, that a panic becomes a coded
// answer, and that wrapping a response writer hides none of its abilities. It must not know what any route does.
package obs
