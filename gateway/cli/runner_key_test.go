package cli

import (
	"strings"
	"testing"
)

func TestRunnerKeyCommand(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	const key, id = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=", "300c9c9603b92a4b"
	p.ok("runner", "register", "laptop")
	if out := p.ok("runner", "key", "laptop"); !strings.Contains(out, "in the clear") {
		t.Error(out)
	}
	for _, args := range [][]string{{"--set", key}, {}} {
		if out := p.ok(append([]string{"runner", "key", "laptop"}, args...)...); !strings.Contains(out, key) || !strings.Contains(out, id) {
			t.Errorf("%v: %s", args, out)
		}
	}
	var shown struct {
		Key string `json:"wake_key"`
		ID  string `json:"wake_key_id"`
	}
	if p.into(&shown, "runner", "key", "laptop"); shown.Key != key || shown.ID != id {
		t.Errorf("%+v", shown)
	}
	if out := p.ok("runner", "key", "laptop", "--remove"); !strings.Contains(out, "in the clear") {
		t.Error(out)
	}
	p.refused(ExitServerRefusal, "X25519", "runner", "key", "laptop", "--set", "AAAA")
	p.refused(ExitServerNotFound, "no such runner", "runner", "key", "nobody")
	p.refused(ExitServerRefusal, "RUNNER_FORBIDDEN", "runner", "key", "laptop", "--remove", "--as", "user:eve")
	p.refused(ExitUsage, "can't be used together", "runner", "key", "laptop", "--remove", "--set", key)
}
