package reserved

import "testing"

func TestRoot(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]bool{ // reserved, readable
		"runners": {true, true}, "worker-pools": {true, true}, "principal": {true, true},
		"livez": {true, false}, "readyz": {true, false}, "metrics": {true, false}, "openapi.json": {true, false}, "openapi-3.0.json": {true, false},
		"v1": {true, false}, "api": {true, false}, ".well-known": {true, false}, "_electric": {true, false}, "__ds": {true, false}, "_": {true, false}, "_x": {true, false},
		"": {}, "chat": {}, "Runners": {}, "runner": {}, "runnersx": {}, ".x": {}, "v2": {}, "x_": {},
	} {
		if reserved, readable := Root(name); [2]bool{reserved, readable} != want {
			t.Errorf("%q: reserved %v, readable %v", name, reserved, readable)
		}
	}
}
