// Package reserved owns the names at the root of the streams' name space that
// belong to the gateway. It promises that all rooms agree on them, and knows
// nothing of what lives there.
package reserved

// roots says of each name whether streams of the gateway may be read below it.
var roots = map[string]bool{
	"runners": true, "worker-pools": true, "principal": true, "_cron": true, "_entities": true,
	"livez": false, "readyz": false, "metrics": false, "openapi.json": false, "openapi-3.0.json": false,
	"v1": false, "api": false, ".well-known": false,
}

// Root says whether nobody but the gateway makes, writes or deletes streams whose
// path begins with this segment, and whether its own may be read there.
func Root(first string) (reserved, readable bool) {
	readable, reserved = roots[first]
	return reserved || len(first) > 0 && first[0] == '_', readable
}
