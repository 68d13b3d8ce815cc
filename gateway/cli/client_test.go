package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

// person is somebody at a terminal, with a gateway.
type person struct {
	t       *testing.T
	environ []string
}

func newPerson(t *testing.T) person {
	t.Helper()
	gw := servertest.Start(t, servertest.Options{})
	return person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_AS=user:kyle", "HOME=" + t.TempDir()}}
}

// run gives the exit code and both outputs of a command line; in goes to standard input.
func (p person) run(in string, args ...string) (code int, out, errOut string) {
	p.t.Helper()
	var o, e bytes.Buffer
	code = Run(p.t.Context(), args, Streams{In: strings.NewReader(in), Out: &o, Err: &e, Environ: p.environ})
	return code, o.String(), e.String()
}

// ok runs a command line that must succeed and gives what it printed.
func (p person) ok(args ...string) string {
	p.t.Helper()
	code, out, errOut := p.run("", args...)
	if code != ExitOK {
		p.t.Fatalf("rouse %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

// into runs a command line with --json and decodes its answer.
func (p person) into(v any, args ...string) {
	p.t.Helper()
	out := p.ok(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		p.t.Fatalf("rouse %s prints no JSON: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (p person) refused(code int, want string, args ...string) {
	p.t.Helper()
	got, out, errOut := p.run("", args...)
	if got != code || !strings.Contains(errOut, want) {
		p.t.Errorf("rouse %s: exit code %d, want %d; want %q in\n%s%s", strings.Join(args, " "), got, code, want, out, errOut)
	}
}

func TestStreamCommands(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	if out := p.ok("stream", "create", "notes/today", `{"text":"hello"}`); !strings.HasPrefix(out, "created /notes/today at ") {
		t.Error(out)
	}
	if out := p.ok("stream", "create", "/notes/today"); !strings.HasPrefix(out, "is there already") {
		t.Error(out)
	}
	p.ok("stream", "append", "notes/today", `{"a":1}`, "just text", "7")
	p.ok("stream", "append", "notes/today", "--text", "7")
	for _, in := range []struct {
		text string
		args []string
	}{{"{\"x\":1} {\"x\":2}\n[3]", nil}, {"l1\nl2\n", []string{"--text"}}} {
		if code, _, errOut := p.run(in.text, append([]string{"stream", "append", "notes/today"}, in.args...)...); code != 0 {
			t.Fatal(errOut)
		}
	}
	want := "{\"text\":\"hello\"}\n{\"a\":1}\n\"just text\"\n7\n\"7\"\n{\"x\":1}\n{\"x\":2}\n[3]\n\"l1\"\n\"l2\"\n"
	if out := p.ok("stream", "read", "notes/today"); out != want {
		t.Errorf("%s", out)
	}
	var info streamState
	p.into(&info, "stream", "info", "notes/today")
	if info.ContentType != "application/json" || info.Offset == "" || info.Closed {
		t.Errorf("%+v", info)
	}
	lines := p.lines("stream", "read", "notes/today", "--json")
	if first, last := lines[0], lines[len(lines)-1]; string(first.Message) != `{"text":"hello"}` || first.Offset != "" || last.Offset != info.Offset {
		t.Errorf("%+v", lines)
	}
	if out := p.ok("stream", "read", "notes/today", "--offset", info.Offset); out != "" {
		t.Errorf("beyond the end: %q", out)
	}

	p.ok("stream", "fork", "notes/today", "notes/fork")
	p.ok("stream", "append", "notes/fork", "mine", "--close")
	if out := p.ok("stream", "tail", "notes/fork", "--offset", "start"); out != want+"\"mine\"\n" {
		t.Errorf("the tail of a closed stream: %q", out)
	}
	p.refused(ExitServerRefusal, "STREAM_CLOSED", "stream", "append", "notes/fork", "more")
	p.ok("stream", "close", "notes/today")
	p.ok("stream", "delete", "notes/fork")
	p.refused(ExitServerNotFound, `"rouse stream create PATH"`, "stream", "read", "notes/fork")
	p.refused(ExitServerNotFound, "STREAM_NOT_FOUND", "stream", "info", "nowhere")
	p.refused(ExitServerNotFound, "STREAM_NOT_FOUND", "stream", "append", "nowhere", "x")

	p.ok("stream", "create", "logs/x", "--type", "text/plain", "hi", "--ttl", "1h")
	if code, _, errOut := p.run(" there\n", "stream", "append", "logs/x", "-", "--close"); code != 0 {
		t.Fatal(errOut)
	}
	if out := p.ok("stream", "read", "logs/x"); out != "hi there\n" {
		t.Errorf("%q", out)
	}
	p.into(&info, "stream", "info", "logs/x")
	if !info.Closed || info.TTL != "3600" {
		t.Errorf("%+v", info)
	}

	for i := range 2 { // a producer's append lands once
		p.ok("stream", "create", "once")
		p.ok("stream", "append", "once", fmt.Sprint(i), "--producer", "me:1:0")
	}
	if out := p.ok("stream", "read", "once"); out != "0\n" {
		t.Errorf("%q", out)
	}
}

// printed is a line that --json prints of a stream.
type printed struct {
	Offset, Encoding string
	Message, Data    json.RawMessage
}

func (p person) lines(args ...string) (all []printed) {
	p.t.Helper()
	for l := range strings.Lines(p.ok(args...)) {
		var one printed
		if err := json.Unmarshal([]byte(l), &one); err != nil {
			p.t.Fatalf("%q: %v", l, err)
		}
		all = append(all, one)
	}
	return all
}

func TestReadingGoesOnFromEveryOffsetThatIsPrinted(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	row := func(key string) string { return `{"type":"x","key":"` + key + `","headers":{"operation":"insert"}}` }
	p.ok("stream", "create", "s")
	p.ok("stream", "append", "s", row("a"), row("b"))
	p.ok("stream", "append", "s", row("c"))
	p.ok("stream", "append", "s", `{"plain":1}`)
	p.ok("stream", "append", "s", row("d"), "2")
	p.ok("stream", "append", "s", "3", "--close")
	for _, args := range [][]string{{"stream", "read", "s", "--json"}, {"stream", "tail", "s", "--json", "--offset", "start"}} {
		all, offsets := p.lines(args...), 0
		if len(all) != 7 {
			t.Fatalf("%v: %+v", args, all)
		}
		for i, l := range all {
			if l.Offset == "" {
				continue
			}
			offsets++
			if rest := p.lines("stream", "read", "s", "--json", "--offset", l.Offset); len(rest) != len(all)-i-1 {
				t.Errorf("%v: after line %d reading goes on with %d messages", args, i, len(rest))
			}
		}
		if offsets < 2 || all[0].Offset != "" || all[len(all)-1].Offset == "" {
			t.Errorf("%v: %+v", args, all)
		}
	}

	p.ok("stream", "create", "t", "--type", "text/plain; charset=utf-8", "grüß\n")
	if got := p.lines("stream", "read", "t", "--json"); len(got) != 1 || string(got[0].Data) != `"grüß\n"` || got[0].Encoding != "" || got[0].Offset == "" {
		t.Errorf("%+v", got)
	}
	p.ok("stream", "create", "b", "--type", "application/octet-stream", "ab")
	if got := p.lines("stream", "read", "b", "--json"); len(got) != 1 || string(got[0].Data) != `"YWI="` || got[0].Encoding != "base64" {
		t.Errorf("%+v", got)
	}
}

func TestOffsetsAreOnlyThoseOfTheGateway(t *testing.T) {
	t.Parallel()
	row := func(offset, more string) json.RawMessage {
		return json.RawMessage(`{"headers":{"offset":"` + offset + `","operation":"insert"` + more + `}}`)
	}
	for _, c := range []struct {
		messages []json.RawMessage
		want     []string
	}{
		{[]json.RawMessage{row("1", ""), row("1", ""), row("2", "")}, []string{"", "1", "end"}},
		{[]json.RawMessage{row("1", `,"Offset":"9"`), row("2", "")}, []string{"1", "end"}},
		{[]json.RawMessage{[]byte(`{"headers":{"offset":"9"}}`), row("2", "")}, []string{"", "end"}},
		{[]json.RawMessage{row("1", ""), []byte(`7`), row("2", "")}, []string{"", "", "end"}},
		{nil, []string{}},
	} {
		if got := resumable(tail.Batch{Offset: "end", Messages: c.messages}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.messages, got, c.want)
		}
	}
}

func TestHintsNameWhatHelps(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.refused(ExitServerNotFound, `"rouse entity spawn nope/1"`, "entity", "tail", "nope/1")
	p.refused(ExitServerNotFound, `"rouse service create NAME"`, "entity", "ps", "--service", "nowhere")
	p.refused(ExitServerRefusal, "made for system:framework", "service", "create", "blue")
	p.ok("type", "put", "task")
	if out := p.ok("type", "get", "task"); strings.Contains(out, "now ago") {
		t.Error(out)
	}
	p.ok("entity", "spawn", "task/1")
	p.ok("entity", "kill", "task/1")
	if _, _, errOut := p.run("", "entity", "send", "task/1", "x"); !strings.Contains(errOut, "stays so") || strings.Contains(errOut, "SIGCONT") {
		t.Error(errOut)
	}
	p.refused(ExitUsage, `Run "rouse stream --help"`, "stream")
	p.refused(ExitUsage, `Run "rouse --help"`, "bogus")
	if got, want := ago(time.Now()), "just now"; got != want {
		t.Error(got)
	}
}

func TestWithoutCredentialsTheAdviceIsWhole(t *testing.T) {
	t.Parallel()
	detail := "Credentials are missing. Send Authorization: Bearer with a token of this server."
	code := "UNAUTHORIZED"
	gw := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"status": 401, "code": code, "detail": detail}) // the client fails without it
	}))
	t.Cleanup(gw.Close)
	for _, as := range []string{"", "user:kyle"} {
		p := person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_AS=" + as}}
		p.refused(ExitServerRefusal, detail+"\n→ set ROUSE_TOKEN or --token", "entity", "ps")
	}
	unknown := "Nobody is known by these credentials. Send Authorization: Bearer with a token of this server."
	detail = unknown
	person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_TOKEN=abc"}}.refused(ExitServerRefusal, unknown+"\n→ set ROUSE_TOKEN or --token to a token of this gateway", "entity", "spawn", "task/1")
	detail = "You may not spawn this entity type."
	p := person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_AS=user:eve"}}
	p.refused(ExitServerRefusal, "→ act as who registered the type", "entity", "spawn", "task/1")
	code, detail = "FORBIDDEN", "The policy of this gateway does not allow it."
	p.refused(ExitServerRefusal, "→ its authorizers decide", "entity", "ps")
	for text, want := range map[string]string{
		"Bearer with a token":                 "Bearer with a token",
		"Bearer token: Bearer abc.def":        "Bearer token: Bearer [redacted]",
		"bearer without-a-doubt":              "bearer [redacted]",
		"bearer with-1234":                    "bearer [redacted]",
		"postgres://a:b@c Bearer with, x":     "postgres://a:[redacted]@c Bearer with, x",
		"Authorization: Bearer rouse_pat_abc": "Authorization: Bearer [redacted]",
	} {
		if got := scrub(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestEntityCommands(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.refused(ExitServerNotFound, `"rouse type put NAME"`, "entity", "spawn", "task/1")
	p.ok("type", "put", "task", "-d", "Something to do")
	if code, out, errOut := p.run(`{"creation_schema":{"type":"object"}}`, "type", "put", "task", "-f", "-", "-d", "More"); code != 0 || !strings.Contains(out, "revision 2") {
		t.Errorf("%s%s", out, errOut)
	}
	if out := p.ok("type", "ls"); !strings.Contains(out, "task") || !strings.Contains(out, "user:kyle") {
		t.Error(out)
	}
	if out := p.ok("type", "get", "task"); !strings.Contains(out, "More") {
		t.Error(out)
	}
	p.refused(ExitServerNotFound, "/dispatch_policy/targets/0/runnerId", "entity", "spawn", "task/1", "--runner", "laptop")
	p.ok("runner", "register", "laptop", "--label", "Kyle's MacBook", "--capacity", "2")
	p.ok("entity", "spawn", "task/team/a/1", "--runner", "laptop", "--args", `{"colour":"blue"}`, "--tag", "a=b", "-m", "paint")
	p.refused(ExitServerRefusal, "DUPLICATE_URL", "entity", "spawn", "task/team/a/1")
	for _, args := range [][]string{{"entity", "inspect", "task/team/a/1"}, {"entity", "tail", "task/team/a/1"}, {"stream", "info", "task/team/a/1/main"}} {
		p.refused(ExitServerRefusal, "act as its owner", append(args, "--as", "user:eve")...)
	}
	var sent struct{ Offset, Key string }
	p.into(&sent, "entity", "send", "/task/team/a/1/main", `{"x":[1,2]}`, "--key", "k1")
	var again struct{ Offset, Key string }
	p.into(&again, "entity", "send", "task/team/a/1", `{"x":[1,2]}`, "--key", "k1")
	if sent.Key != "k1" || again.Offset != sent.Offset {
		t.Errorf("%+v %+v", sent, again)
	}
	if code, _, errOut := p.run("piped", "entity", "send", "task/team/a/1", "-"); code != 0 {
		t.Error(errOut)
	}
	out := p.ok("entity", "tail", "task/team/a/1", "--no-follow")
	if want := "entity_created  task\ninbox     user:kyle: paint\ninbox     user:kyle: {\"x\":[1,2]}\ninbox     user:kyle: piped\n"; out != want {
		t.Errorf("%s", out)
	}
	out = p.ok("entity", "ps")
	if !strings.Contains(out, "/task/team/a/1") || !strings.Contains(out, "runner laptop") || strings.Contains(out, "\x1b") {
		t.Errorf("%s", out)
	}
	var file entityFile
	soon.Within(t, 20*time.Second, "a wake exists", func() bool {
		p.into(&file, "entity", "inspect", "task/team/a/1")
		return file.Dispatch.OutstandingWakeID != nil
	})
	if file.Entity.URL != "/task/team/a/1" || len(file.Wakes) != 1 || file.Display.Display == "" {
		t.Errorf("%+v", file)
	}
	if out := p.ok("entity", "inspect", "task/team/a/1"); !strings.Contains(out, "Waiting for runner") || !strings.Contains(out, *file.Dispatch.OutstandingWakeID) {
		t.Errorf("%s", out)
	}
	if out := p.ok("entity", "signal", "task/team/a/1", "stop"); !strings.Contains(out, "idle → paused") {
		t.Error(out)
	}
	p.refused(ExitUsage, "no signal SIGFOO for entities: name SIGINT", "entity", "signal", "task/team/a/1", "SIGFOO")
	p.refused(ExitUsage, "no entity has the status waiting: name spawning", "entity", "ps", "--status", "waiting")
	p.refused(ExitUsage, "at least 1", "entity", "ps", "--limit", "0")
	p.refused(ExitServerRefusal, `"rouse entity send"`, "stream", "append", "task/team/a/1/main", "{}")
	if out := p.ok("wake", "show", *file.Dispatch.OutstandingWakeID); !strings.Contains(out, "runner laptop\n") {
		t.Error(out)
	}
	if out := p.ok("entity", "ps", "--status", "PAUSED"); !strings.Contains(out, "/task/team/a/1") {
		t.Error(out)
	}
	if _, _, errOut := p.run("", "entity", "ps", "--type", "other"); !strings.Contains(errOut, "none such; --all") {
		t.Error(errOut)
	}
	p.ok("entity", "kill", "task/team/a/1", "--reason", "enough")
	if out := p.ok("entity", "tail", "task/team/a/1"); !strings.Contains(out, "signal    SIGKILL enough") { // ends: the stream is closed
		t.Error(out)
	}
	p.refused(ExitServerRefusal, "NOT_RUNNING", "entity", "send", "task/team/a/1", "x")
	if out := p.ok("entity", "ps"); strings.Contains(out, "/task/") {
		t.Error(out)
	}
	if out := p.ok("entity", "ps", "--all"); !strings.Contains(out, "Killed") {
		t.Error(out)
	}
	p.refused(ExitServerNotFound, "no error stream", "entity", "tail", "task/team/a/1", "--errors")
	p.ok("type", "rm", "task")
	p.refused(ExitServerNotFound, "", "type", "get", "task")
}

func TestRunnerCommands(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.ok("runner", "register", "laptop", "--label", "Kyle's MacBook")
	if out := p.ok("runner", "ls"); !strings.Contains(out, "Kyle's MacBook") || !strings.Contains(out, "offline") {
		t.Error(out)
	}
	if out := p.ok("runner", "disable", "laptop"); !strings.Contains(out, "disabled") {
		t.Error(out)
	}
	p.ok("runner", "enable", "laptop")
	p.refused(ExitServerRefusal, "RUNNER_FORBIDDEN", "runner", "enable", "laptop", "--as", "user:eve")
	p.refused(ExitServerNotFound, "no such runner", "runner", "health", "nobody")
	p.refused(ExitServerRefusal, "RUNNER_FORBIDDEN", "runner", "run", "--id", "laptop", "--exec", "true", "--as", "user:eve")
	p.refused(ExitUsage, "id is 1 to 128", "runner", "run", "--id", "a/b", "--exec", "true")

	if out := p.ok("runner", "health", "laptop"); !strings.Contains(out, "\n! RUNNER_NEVER_SEEN: The runner") {
		t.Error(out)
	}

	p.ok("type", "put", "task")
	p.ok("entity", "spawn", "task/1", "--runner", "laptop", "-m", "hello")
	ctx, stop := context.WithCancel(t.Context())
	var events, log output
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, []string{"runner", "run", "--id", "laptop", "--json", "--exec", `sed 's/.*"payload":"\([^"]*\)".*/did \1/'; echo "$ROUSE_TOKEN$ROUSE_ENTITY" >&2`},
			Streams{In: strings.NewReader(""), Out: &events, Err: &log, Environ: append([]string{"PATH=/usr/bin:/bin", "ROUSE_TOKEN=secret-of-kyle"}, p.environ...)})
	}()
	soon.Within(t, 20*time.Second, "the run is over", func() bool { return strings.Contains(events.String(), `"event":"done"`) })
	if out := p.ok("runner", "health", "laptop"); !strings.Contains(out, "online") {
		t.Error(out)
	}
	stop()
	if code := <-ended; code != ExitOK {
		t.Errorf("exit code %d\n%s", code, &log)
	}
	if out := p.ok("entity", "tail", "task/1", "--no-follow"); !strings.Contains(out, "text      did hello\n") {
		t.Errorf("%s", out)
	}
	if !strings.Contains(log.String(), "/task/1") || strings.Contains(log.String(), "secret") {
		t.Errorf("the command's standard error: %s", &log)
	}
	for _, l := range strings.Split(strings.TrimSpace(events.String()), "\n") {
		if !json.Valid([]byte(l)) {
			t.Errorf("no JSON: %s", l)
		}
	}
	if out := p.ok("runner", "ls"); !strings.Contains(out, "Kyle's MacBook") {
		t.Errorf("running it renamed it: %s", out)
	}
}

func TestClientMistakes(t *testing.T) {
	t.Parallel()
	p := person{t, []string{"ROUSE_SERVER=http://127.0.0.1:1", "HOME=/nowhere"}}
	p.refused(ExitUnavailable, `start one with "rouse dev"`, "entity", "ps")
	p.refused(ExitUnavailable, "cannot be reached", "stream", "tail", "x")
	p.refused(ExitUsage, "http or https", "entity", "ps", "--server", "foo")
	p.refused(ExitUsage, "TYPE/ID", "entity", "inspect", "task")
	p.refused(ExitUsage, "must not be empty", "stream", "read", "/")
	p.refused(ExitUsage, "ID:EPOCH:SEQ", "stream", "append", "x", "y", "--producer", "me")
	p.refused(ExitUsage, "cannot be sent", "entity", "ps", "--as", "user:\nx")
	p.refused(ExitUsage, "not JSON", "entity", "spawn", "task/1", "--args", "{")
	p.refused(ExitUsage, "JSON object", "type", "put", "task", "-f", "-")
	p.refused(ExitUsage, "can't be used together", "entity", "spawn", "task/1", "--runner", "a", "--webhook", "http://x")
	p.refused(ExitUsage, "1s to 1m", "demo", "--lease", "1h")
	p.refused(ExitUsage, "--expires: must be a time such as 2027", "stream", "create", "x", "--expires", "tomorrow")
}

func TestWhatOthersWroteCannotDriveATerminal(t *testing.T) {
	t.Parallel()
	evil := "a\x1b[2Jb\x07c\u202ed\x9be\nf"
	if got := printable(evil); got != "a�[2Jb�c�d�e\nf" {
		t.Errorf("%q", got)
	}
	if got := oneLine(strings.Repeat("ü ", 50), 10); len([]rune(got)) != 10 || !strings.HasSuffix(got, "…") {
		t.Errorf("%q", got)
	}
	p := &printer{colour: true}
	row, _ := json.Marshal(map[string]any{"type": "in\x1bbox", "key": "k\x1b", "headers": map[string]any{"operation": "insert"}, "value": map[string]any{"text": "x\x1b]0;owned\x07"}})
	plain := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(p.row(row))
	if strings.ContainsRune(plain, '\x1b') || strings.ContainsRune(plain, '\x07') {
		t.Errorf("%q", plain)
	}
	if visible(p.paint(red, "four")) != 4 {
		t.Error("colours take room")
	}
}

// The story, as `make run` plays it: on a gateway, a Postgres and runners in processes of their own.
func TestDemo(t *testing.T) {
	t.Parallel()
	demo := launch(t, []string{"ROUSE_LEASE_TTL=1h", "ROUSE_SERVER=http://127.0.0.1:1", "TMPDIR=" + dataDir(t)}, "demo", "--lease", "2s")
	select {
	case <-demo.exited:
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
	if code := demo.cmd.ProcessState.ExitCode(); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{"step 4 of 4 (epoch 1)", "step 2 of 4 (epoch 2)", "kill -9", "step 3 of 4 (epoch 3)", "step 4 of 4 (epoch 3)", "✓ every step was done once", "What to try next"} {
		if !strings.Contains(demo.out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(demo.out.String(), "export ROUSE_AS") {
		t.Error("what to try next needs the same variable in two terminals")
	}
	if strings.Contains(demo.out.String(), "step 3 of 4 (epoch 2)") || strings.Contains(demo.out.String(), "\x1b") {
		t.Error("the dead laptop went on, or there are colours in a pipe")
	}
}

func TestDemoFailsClearly(t *testing.T) {
	t.Parallel()
	demo := launch(t, []string{"ROUSE_PG_BIN=/nowhere"}, "demo")
	select {
	case <-demo.exited:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if code := demo.cmd.ProcessState.ExitCode(); code != ExitPostgres || !strings.Contains(demo.out.String(), "POSTGRES_NOT_FOUND") {
		t.Errorf("exit code %d", code)
	}
}
