package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

const kept = "KEPT=hunter2"

// spy says what it can read of another process.
func spy(pid int) string {
	env, envErr := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	mem, memErr := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if memErr == nil {
		_ = mem.Close()
	}
	return fmt.Sprintf("environment %t memory %t denied %t", bytes.Contains(env, []byte(kept)), memErr == nil,
		errors.Is(envErr, os.ErrPermission) && errors.Is(memErr, os.ErrPermission))
}

// fixtureKeeper is a gateway whose plugins spy on it: a program, and a built-in one.
func fixtureKeeper() {
	if os.Getenv("OPEN") == "" {
		if err := Conceal(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	builtin := ownSpec("transport")
	builtin.Path, builtin.SHA256, builtin.Builtin = "", "", "fixture"
	name, value, _ := strings.Cut(kept, "=")
	builtin.Env[name] = value
	set := Set{Transports: map[string]Spec{"program": ownSpec("transport"), "builtin": builtin}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h, err := New(ctx, Config{Amend: func(s *Set) error { *s = set; return nil }, TempDir: os.Getenv("HOST_DIR"), SelfArgs: []string{"rouse", "plugin-serve"},
		Builtins: map[string]func() sdk.Transport{"fixture": func() sdk.Transport { return fixtureTransport(false) }}})
	if err == nil {
		err = h.Start(ctx)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ask := func(name string, pid int) string {
		target := fmt.Appendf(nil, `{"type":"fixture","do":"spy","pid":%d}`, pid)
		r := contract.Result{Outcome: contract.Retry}
		for r.Outcome == contract.Retry && ctx.Err() == nil {
			r = h.Transport(name).Deliver(ctx, contract.Delivery{WakeID: "w", Target: target, Notification: json.RawMessage(`{}`)})
		}
		return r.Error
	}
	for _, name := range []string{"program", "builtin"} {
		fmt.Println(name, ask(name, 0))
	}
	for _, p := range h.Plugins() {
		if p.Name == "builtin" {
			fmt.Println("sibling", ask("program", p.PID))
		}
	}
	fmt.Println(h.Stop(ctx))
	os.Exit(0)
}
