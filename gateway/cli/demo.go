package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-run/rouse/openapi/client"
)

type demoCmd struct {
	Server string        `help:"Play on this gateway (which lets callers say who they are) instead of one of the demo's own." placeholder:"URL"`
	Lease  time.Duration `help:"How long a claim lives without a heartbeat, on the demo's own gateway." default:"3s"`
	Keep   bool          `help:"Keep the gateway and the laptop running at the end, until Ctrl-C."`
}

func (demoCmd) Help() string {
	return `A phone gives an entity work, a laptop does it. The laptop is killed in the middle of it, and another process goes on where it was. Each step is looked at through the API; the exit code is 0 only if all of them were seen.`
}

// The two messages and what working them is.
const (
	demoUser   = "user:demo"
	firstWork  = "water the plants"
	secondWork = "paint the shed"
	demoSteps  = 4
)

// demoScript works the newest message in steps. It gets its own earlier output too, so it knows what is done already:
// the stream is all the memory it has.
const demoScript = `
in=$(cat)
work=$(printf '%s\n' "$in" | sed -n 's/.*"payload":"\([^"]*\)".*/\1/p' | tail -n 1)
for step in 1 2 3 4; do
	case "$in" in *"\"text\":\"$work: step $step "*) continue ;; esac
	sleep 0.4
	echo "$work: step $step of 4 (epoch $ROUSE_EPOCH)"
done`

func (c *demoCmd) Run(r *run) (err error) {
	if c.Lease < time.Second || c.Lease > time.Minute {
		return failf(ExitUsage, "--lease must be 1s to 1m")
	}
	ctx, restore := untilSignalled(r.ctx)
	defer restore()
	d := &demo{r: r, printer: newPrinter(r), ctx: ctx, began: time.Now()}
	defer func() {
		if stopErr := d.stop(); err == nil {
			err = stopErr
		}
	}()
	if err := d.play(c); err != nil {
		if ctx.Err() != nil {
			return failf(ExitFailed, "interrupted")
		}
		return d.explainFailure(err)
	}
	if c.Keep {
		d.printf("\n  Everything keeps running. Ctrl-C ends it.\n")
		<-ctx.Done()
	}
	return nil
}

// play is the story.
func (d *demo) play(c *demoCmd) error {
	d.printf("\n  %s\n\n", d.paint(bold, "A phone, a laptop, and a laptop that dies"))

	if c.Server == "" {
		d.step("A gateway on a Postgres of its own")
	} else {
		d.step("A gateway that is there already")
	}
	if err := d.openGateway(c); err != nil {
		return err
	}
	d.note("%s", d.server.URL)

	d.step("The laptop becomes a runner: a process that waits for work")
	first, err := d.openLaptop()
	if err != nil {
		return err
	}
	d.note("process %d tails /runners/%s/wake", first.pid(), d.runner)

	d.step("The phone spawns an entity and sends it a message")
	if err := d.spawn(); err != nil {
		return err
	}
	if err := d.send(firstWork); err != nil {
		return err
	}
	if err := d.await("the laptop claims it", 20*time.Second, func(s demoState) bool { return s.epoch() >= 1 }); err != nil {
		return err
	}
	d.note("the laptop is woken and claims %s: epoch 1", d.entity)
	if err := d.await("the laptop works it and releases", 20*time.Second, func(s demoState) bool {
		return s.status(1) == "released" && d.done(firstWork) == demoSteps && !s.display.Pending
	}); err != nil {
		return err
	}
	d.note("acked and released. The UI says: %s", d.state.display.Display)

	d.step("A second message, and the laptop dies in the middle of it")
	if err := d.send(secondWork); err != nil {
		return err
	}
	if err := d.await("half of the work is done", 20*time.Second, func(s demoState) bool { return s.epoch() >= 2 && d.done(secondWork) >= 2 }); err != nil {
		return err
	}
	if err := first.kill(); err != nil {
		return err
	}
	killed := time.Now()
	d.note("%s", d.paint(red, fmt.Sprintf("kill -9 %d", first.pid())))
	if err := d.look(); err != nil {
		return err
	}
	if d.state.status(2) != "active" {
		return fmt.Errorf("the dead laptop's claim should still be active until its lease ends, it is %q", d.state.status(2))
	}
	d.note("its claim, epoch 2, is still good: nobody else gets in before its lease has ended")

	d.step("Another process of the laptop starts and waits for its turn")
	second, err := d.openLaptop()
	if err != nil {
		return err
	}
	d.note("process %d", second.pid())
	if err := d.await("the lease ends and the second process claims", time.Minute, func(s demoState) bool { return s.epoch() >= 3 }); err != nil {
		return err
	}
	if d.state.status(2) != "expired" {
		return fmt.Errorf("the dead laptop's claim should be expired, it is %q", d.state.status(2))
	}
	d.note("%s after the kill: epoch 2 expired, a fresh wake, claimed as epoch 3", time.Since(killed).Round(10*time.Millisecond))
	if err := d.await("the second process finishes", 20*time.Second, func(s demoState) bool {
		return s.status(3) == "released" && d.done(secondWork) >= demoSteps && !s.display.Pending
	}); err != nil {
		return err
	}
	d.note("released. The UI says: %s", d.state.display.Display)
	if err := d.check(); err != nil {
		return err
	}
	d.printf("\n  %s every step was done once, in order, by one owner at a time (%v).\n", d.paint(green, "✓"), time.Since(d.began).Round(100*time.Millisecond))
	d.next(c.Keep)
	return nil
}

// check reads the stream once more and looks at the whole.
func (d *demo) check() error {
	p, err := d.page(d.entity+"/main", "-1")
	if err != nil {
		return err
	}
	var rows []struct {
		Type  string
		Value struct{ Text string }
	}
	if err := json.Unmarshal(p.body, &rows); err != nil {
		return err
	}
	var got []string
	for _, r := range rows {
		if r.Type == "text" {
			text, _, _ := strings.Cut(r.Value.Text, " (")
			got = append(got, text)
		}
	}
	var want []string
	for _, work := range []string{firstWork, secondWork} {
		for i := range demoSteps {
			want = append(want, fmt.Sprintf("%s: step %d of %d", work, i+1, demoSteps))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		return fmt.Errorf("the stream should hold each step once and in order; it holds:\n  %s", strings.Join(got, "\n  "))
	}
	return nil
}

// next says what to try, with this binary's name as it was called.
func (d *demo) next(keep bool) {
	name := "rouse"
	if called := os.Args[0]; strings.Contains(called, "/") {
		name = called
	}
	lines := [][2]string{
		{name + " dev", "a gateway that stays, in a terminal of its own"},
		{name + ` type put task -d "Something to do"`, ""},
		{name + ` runner run --id my-laptop --exec 'sed "s/^/got /"'`, "in another terminal"},
		{name + " entity spawn task/1 --runner my-laptop -m 'hello'", ""},
		{name + " entity tail task/1", ""},
		{name + " entity inspect task/1", ""},
	}
	if keep {
		lines = lines[1:]
		if d.server.URL != defaultServer {
			lines = append([][2]string{{"export ROUSE_SERVER=" + d.server.URL, ""}}, lines...)
		}
	}
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l[0]))
	}
	d.printf("\n  %s\n\n", d.paint(bold, "What to try next"))
	for _, l := range lines {
		if l[1] == "" {
			d.printf("    %s\n", l[0])
		} else {
			d.printf("    %s  %s\n", pad(l[0], width), d.paint(dim, "# "+l[1]))
		}
	}
	d.printf("\n")
}

func (d *demo) spawn() error {
	typ, id, _ := strings.Cut(d.entity, "/")
	err := d.ask(nil, func(ctx context.Context) (*http.Response, error) {
		return d.PutEntityType(ctx, nil, client.EntityTypePut{Name: typ, Description: ptr("Something to do")})
	})
	if err != nil {
		return err
	}
	policy := &client.DispatchPolicy{Targets: []client.DispatchTarget{{Type: "runner", RunnerID: ptr(d.runner)}}}
	if err := d.ask(nil, func(ctx context.Context) (*http.Response, error) {
		return d.SpawnEntity(ctx, typ, id, nil, client.SpawnRequest{DispatchPolicy: policy})
	}); err != nil {
		return err
	}
	d.watch()
	return nil
}

func (d *demo) send(text string) error {
	typ, id, _ := strings.Cut(d.entity, "/")
	return d.ask(nil, func(ctx context.Context) (*http.Response, error) {
		return d.SendToEntity(ctx, typ, id, nil, client.SendRequest{Payload: value(text, true)})
	})
}

// demoState is what the gateway says of the entity.
type demoState struct {
	display client.Display
	claims  []client.Claim
}

// epoch is the newest claim's.
func (s demoState) epoch() int64 {
	if len(s.claims) == 0 {
		return 0
	}
	return s.claims[0].Epoch
}

func (s demoState) status(epoch int64) string {
	for _, c := range s.claims {
		if c.Epoch == epoch {
			return c.Status
		}
	}
	return "absent"
}

func (d *demo) look() error {
	typ, id, _ := strings.Cut(d.entity, "/")
	var s demoState
	if err := d.ask(&s.claims, func(ctx context.Context) (*http.Response, error) { return d.ListEntityClaims(ctx, typ, id, nil) }); err != nil {
		return err
	}
	if err := d.ask(&s.display, func(ctx context.Context) (*http.Response, error) { return d.GetEntityDisplay(ctx, typ, id, nil) }); err != nil {
		return err
	}
	d.state = s
	return nil
}

// await prints what happens on the stream until ok, which is asked about every fresh look at the gateway.
func (d *demo) await(what string, limit time.Duration, ok func(demoState) bool) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case line := <-d.lines:
			d.show(line)
			continue
		case <-tick.C:
		case err := <-d.broken:
			return err
		case <-deadline.C:
			return fmt.Errorf("not seen in %v: %s", limit, what)
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		}
		if err := d.look(); err != nil {
			return err
		}
		if ok(d.state) && len(d.lines) == 0 {
			return nil
		}
	}
}
