package pluginhost

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
)

// F18.
func TestAKilledPluginIsBackWithinASecond(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "transport", func(h *Host) { h.deps.pace = usualPace })
	pid := up(t, h)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	gone(t, pid, time.Second)
	// A delivery in between waits for it.
	if r := send(t, tr, "w", "accept", 10*time.Second); r.Outcome != contract.Accepted && r.Outcome != contract.Retry {
		t.Errorf("got %+v", r)
	}
	soon.Within(t, 5*time.Second, "it is back", func() bool { return info(h).PID != pid && info(h).State == stateUp })
	// The machine has other things to do as well: a second is the promise, and
	// the start of a process is not ours.
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	if r := send(t, tr, "w2", "accept", 10*time.Second); r.Outcome != contract.Accepted {
		t.Errorf("got %+v", r)
	}
}

// F18, F19.
func TestACrashWhileDeliveringIsUncertainOnlyWhereItMustBe(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]contract.Outcome{"transport": contract.Retry, "once": contract.Unknown} {
		for _, do := range []string{"crash", "hang", "panic"} {
			t.Run(what+" "+do, func(t *testing.T) {
				t.Parallel()
				h, tr := one(t, what)
				pid := up(t, h)
				began := time.Now()
				if r := send(t, tr, "w", do, 500*time.Millisecond); r.Outcome != want {
					t.Errorf("got %+v", r)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("the deadline did not hold: %v", took)
				}
				soon.Within(t, 10*time.Second, "others are delivered", func() bool { return send(t, tr, "v", "accept", 5*time.Second).Outcome == contract.Accepted })
				// A plugin of which one call hangs is alive.
				if same := info(h).PID == pid; same != (do != "crash") {
					t.Errorf("the same process: %v", same)
				}
			})
		}
	}
}

func TestWhatMustNotBeRepeatedSaysSo(t *testing.T) {
	t.Parallel()
	_, tr := one(t, "once")
	if r := send(t, tr, "w", "accept", 10*time.Second); r.Outcome != contract.Accepted || r.RetryAfter != contract.NoRepeat {
		t.Errorf("got %+v", r)
	}
}

// F18, F19: what a plugin can do wrong before it is there.
func TestABrokenStartIsCodedBoundedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for what, code := range map[string]string{"exit": CodeStartFailed, "mute": CodeStartTimeout, "rubbish": CodeStartFailed, "longline": CodeStartFailed,
		"nosocket": CodeStartFailed, "version": CodeVersion, "hook": CodeVersion} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h, tr := one(t, what, func(h *Host) { h.deps.timeout = 3 * time.Second })
			soon.Within(t, 15*time.Second, "it has failed", func() bool { return info(h).Failures > 0 })
			if i := info(h); i.Code != code && !(i.State == stateOpen && strings.HasPrefix(i.Detail, code)) && i.Code != CodeStarting {
				t.Errorf("got %+v", i)
			}
			if r := send(t, tr, "w", "accept", 100*time.Millisecond); r.Outcome != contract.Retry || !strings.Contains(r.Error, "PLUGIN_") {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// L6.
func TestTheCircuitOpensAfterFiveFailuresAndCloses(t *testing.T) {
	t.Parallel()
	spec := ownSpec("exit")
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": spec}}, func(h *Host) { h.deps.pace.open = time.Hour })
	soon.Within(t, 20*time.Second, "the circuit is open", func() bool { return info(h).Code == CodeCircuitOpen })
	i := info(h)
	if i.Failures != failuresMost || i.Starts != 0 || time.Until(i.NextStart) < 50*time.Minute {
		t.Errorf("got %+v", i)
	}
	if r := h.Health(); len(r) != 1 || r[0].Code != CodeCircuitOpen || r[0].Check != "plugin:fixture" {
		t.Errorf("got %v", r)
	}
	began := time.Now()
	if r := send(t, h.transports["fixture"], "w", "accept", 10*time.Second); r.Outcome != contract.Retry || time.Since(began) > time.Second {
		t.Errorf("a call waits for what is left alone: %+v", r)
	}
	// One that heals is tried again, once a period, and used.
	sick := ownSpec("transport").with(map[string]any{"refuse": "not yet"})
	heals := newHost(t, Set{Transports: map[string]Spec{"fixture": sick}})
	soon.Within(t, 20*time.Second, "the circuit is open", func() bool { return info(heals).Code == CodeCircuitOpen })
	first := info(heals).NextStart
	soon.Within(t, 20*time.Second, "it is tried again, and left alone again", func() bool { i := info(heals); return i.NextStart.After(first) && i.Code == CodeCircuitOpen })
	heals.transports["fixture"].replace(t.Context(), ownSpec("transport"))
	if i := info(heals); i.State != stateUp || i.Code != "" {
		t.Errorf("got %+v", i)
	}
}

// freeze stops a process and waits until all of it stands still.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	soon.Within(t, 10*time.Second, "it stands still", func() bool {
		tasks, err := filepath.Glob("/proc/" + pidText(pid) + "/task/*/stat")
		if err != nil || len(tasks) == 0 {
			return false
		}
		for _, task := range tasks {
			raw, err := os.ReadFile(task)
			if _, rest, _ := strings.Cut(string(raw), ") "); err == nil && !strings.HasPrefix(rest, "T") {
				return false
			}
		}
		return true
	})
}

// F19: frozen whole, as by a debugger or a disk.
func TestAFrozenPluginIsReplaced(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "transport")
	pid := up(t, h)
	freeze(t, pid)
	if r := send(t, tr, "w", "accept", 300*time.Millisecond); r.Outcome != contract.Retry {
		t.Errorf("got %+v", r)
	}
	gone(t, pid, 20*time.Second)
	soon.Within(t, 10*time.Second, "its successor delivers", func() bool { return send(t, tr, "v", "accept", 5*time.Second).Outcome == contract.Accepted })
}

// F19.
func TestAPluginThatDoesNotStopIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	h, _ := one(t, "transport", func(h *Host) { h.deps.pace = usualPace })
	pid := up(t, h)
	freeze(t, pid)
	began := time.Now()
	stopHost(t, h)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	gone(t, pid, time.Second)
}

// F19: a GiB of output, more than there is to be memory for, while deliveries go on.
func TestAFloodOfOutputIsBounded(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "flood", func(h *Host) { h.deps.pace = usualPace })
	other := newHost(t, Set{Transports: map[string]Spec{"calm": ownSpec("transport")}})
	pid := up(t, h)
	up(t, other)
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, sent, began := int64(0), 0, time.Now()
	soon.Within(t, 6*time.Minute, "the flood is over", func() bool {
		// It is served itself, and so is everybody beside it.
		for name, to := range map[string]*Transport{"itself": tr, "another": other.transports["calm"]} {
			if r := send(t, to, "w", "accept", 10*time.Second); r.Outcome != contract.Accepted {
				t.Fatalf("%s: %+v", name, r)
			}
		}
		sent++
		runtime.ReadMemStats(&now)
		most = max(most, int64(now.HeapAlloc)-int64(before.HeapAlloc))
		l, _ := h.Logs("fixture")
		return strings.Contains(joined(l), "the flood is over")
	})
	lines, _ := h.Logs("fixture")
	if len(lines) > keptLines || len(joined(lines)) > keptLines*(keptLine+8) {
		t.Errorf("%d lines, %d bytes are kept", len(lines), len(joined(lines)))
	}
	if most > 128<<20 {
		t.Errorf("the heap has grown by %d MiB", most>>20)
	}
	if info(h).PID != pid || sent < 10 {
		t.Errorf("process %d became %d, %d deliveries meanwhile", pid, info(h).PID, sent)
	}
	t.Logf("%v, %d deliveries each meanwhile, at most %d MiB of heap more", time.Since(began), sent, most>>20)
}

func TestMemoryOfAPluginIsLimited(t *testing.T) {
	t.Parallel()
	spec := ownSpec("transport")
	spec.Memory = 100 << 20
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": spec}})
	pid := up(t, h)
	_ = send(t, h.transports["fixture"], "w", "memory", 10*time.Second)
	gone(t, pid, 20*time.Second)
	soon.Within(t, 10*time.Second, "it is up again", func() bool { return info(h).State == stateUp && info(h).PID != pid })
}

// F18: what a plugin has started ends with it, though it holds its output open.
func TestChildrenOfAPluginEndWithIt(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "transport")
	pid := up(t, h)
	child, err := strconv.Atoi(send(t, tr, "w", "child", 10*time.Second).Error)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon.Within(t, 10*time.Second, "the grandchild has ended", func() bool { return ended(child) })
	soon.Within(t, 10*time.Second, "the plugin is back", func() bool { return info(h).PID != pid && info(h).State == stateUp })
}

// F20.
func TestPluginsEndWithAKilledHost(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "ph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.CommandContext(t.Context(), path)
	host.Env = append(os.Environ(), fixtureEnv+"=host", "HOST_DIR="+dir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the host said %q", line)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	soon.Within(t, 2*time.Second, "the plugin has ended", func() bool { return ended(pid) })
	// The next one clears up, also before anybody has collected the dead one.
	soon.Within(t, 10*time.Second, "the host has ended", func() bool { return ended(host.Process.Pid) })
	if len(tracesLeft(t, dir)) == 0 {
		t.Fatal("a killed host has cleared up, so this shows nothing")
	}
	h, err := New(t.Context(), Config{TempDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopHost(t, h)
	_ = host.Wait()
	if left := tracesLeft(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// F18: starts and ends of many leave no zombie, no socket and no folder.
func TestNothingIsLeftOfPluginsThatCameAndWent(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": ownSpec("transport")}}, func(h *Host) { h.cfg.TempDir = dir; h.deps.pace.open = 10 * time.Millisecond })
	pids := map[int]bool{}
	for range 4 {
		pid := up(t, h)
		pids[pid] = true
		_ = syscall.Kill(pid, syscall.SIGKILL)
		soon.Within(t, 10*time.Second, "it is noticed", func() bool { return info(h).PID != pid })
	}
	up(t, h)
	if got, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(got) != 1 {
		t.Errorf("folders of sockets: %v", got)
	}
	pids[info(h).PID] = true
	stopHost(t, h)
	for pid := range pids {
		gone(t, pid, time.Second)
	}
	if got := tracesLeft(t, dir); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}

// A delivery that comes while nothing runs waits a moment and no longer.
func TestACallWaitsForAStartAndNotForEver(t *testing.T) {
	t.Parallel()
	_, tr := one(t, "mute")
	began := time.Now()
	r := send(t, tr, "w", "accept", 30*time.Second)
	if took := time.Since(began); r.Outcome != contract.Retry || r.RetryAfter != time.Second || took < comesBack/2 || took > 3*comesBack {
		t.Errorf("%+v after %v", r, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tr.take(ctx); CodeOf(err) != CodeStarting {
		t.Error(err)
	}
}
