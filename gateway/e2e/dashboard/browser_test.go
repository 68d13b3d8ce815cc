// Package dashboard drives the dashboard as a person does: in a headless Chromium,
// on real gateways.
//
// Each tab fails its test for whatever the browser complains of: an error on its
// console, an exception, a refusal by the content security policy, a request to
// another host. Screenshots stay in ./screenshots, to be looked at.
package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/e2e/laptop"
)

// bound is how long anything may take to be seen.
const bound = 30 * time.Second

// program is the first browser there is, or nothing.
func program() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// one browser serves all tests, each in a context of its own: no cookies, storage or cache in common.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop []context.CancelFunc
	err  error
}

func theBrowser() (context.Context, error) {
	browser.once.Do(func() {
		path := program()
		if path == "" {
			browser.err = fmt.Errorf("there is no Chromium on the PATH: apt-get install chromium")
			return
		}
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("enable-precise-memory-info", true),
			chromedp.Flag("force-color-profile", "srgb"))
		if os.Geteuid() == 0 {
			opts = append(opts, chromedp.NoSandbox)
		}
		alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
		ctx, stop := chromedp.NewContext(alloc)
		browser.stop = []context.CancelFunc{stop, stopAlloc}
		browser.ctx, browser.err = ctx, chromedp.Do(ctx)
	})
	return browser.ctx, browser.err
}

type tests struct{ *testing.M }

// Run ends the browser after the last test, before anything looks for what was left behind.
func (m tests) Run() int {
	code := m.M.Run()
	for _, stop := range browser.stop {
		stop()
	}
	return code
}

func TestMain(m *testing.M) {
	laptop.Serve()
	goleak.VerifyTestMain(tests{m})
}

// look is how a tab's window is.
type look struct {
	width, height int64
	dark, touch   bool
	still         bool // prefers-reduced-motion
}

var (
	desk  = look{width: 1360, height: 860}
	night = look{width: 1360, height: 860, dark: true}
	phone = look{width: 390, height: 844, touch: true, still: true}
)

// tab is an open dashboard.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	expected   []*regexp.Regexp
}

// open opens a gateway's dashboard; session is put into the tab's storage first, as signing in does.
func open(t *testing.T, base, hash string, l look, session map[string]string) *tab {
	t.Helper()
	root, err := theBrowser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(root, chromedp.WithNewBrowserContext())
	w := &tab{t: t, ctx: ctx}
	// How the sync protocol says that a client has to start anew.
	w.expect(`status of 409 .*/electric/v1/shape`)
	// Ended before the gateway drains; what was complained of by then counts.
	t.Cleanup(func() {
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.complaints {
			if !slices.ContainsFunc(w.expected, func(re *regexp.Regexp) bool { return re.MatchString(c) }) {
				t.Errorf("the browser complains: %s", c)
			}
		}
	})
	home, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(ev any) { w.heard(ev, home.Host) }); err != nil {
		t.Fatal(err)
	}
	scheme, motion := "light", "no-preference"
	if l.dark {
		scheme = "dark"
	}
	if l.still {
		motion = "reduce"
	}
	seed, _ := json.Marshal(session)
	w.do(send(network.Enable, network.EnableParams{}), send(log.Enable, cdp.Empty{}), send(runtime.Enable, cdp.Empty{}),
		send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}}}),
		chromedp.EmulateViewport(l.width, l.height, func(m *emulation.SetDeviceMetricsOverrideParams, touch *emulation.SetTouchEmulationEnabledParams) {
			m.Mobile, touch.Enabled = l.touch, l.touch
		}),
		send(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: fmt.Sprintf("for (const [k, v] of Object.entries(%s ?? {})) sessionStorage.setItem(k, v)", seed)}),
		chromedp.Navigate(base+"/_electric/ui/"+hash))
	return w
}

// send makes an action of one of the protocol's commands.
func send[P, R any](cmd cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

func (w *tab) heard(ev any, host string) {
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		what := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			what += " " + x.Description
		}
		w.complain("exception: " + what)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value)+a.Description)
			}
			w.complain("console: " + strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		// Refusals by the policy come as errors of the source security.
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning || e.Entry.Source == log.EntrySourceSecurity {
			w.complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if at, err := url.Parse(e.Request.URL); err == nil && at.Host != host && at.Scheme != "data" {
			w.complain("a request to " + e.Request.URL)
		}
	}
}

func (w *tab) complain(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, text)
}

// expect says which complaints a test provokes.
func (w *tab) expect(pattern string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expected = append(w.expected, regexp.MustCompile(pattern))
}

func (w *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.ctx, bound)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		w.fail(err.Error())
	}
}

// fail leaves a picture of what was there.
func (w *tab) fail(why string) {
	w.t.Helper()
	w.t.Fatalf("%s\npicture: %s\non the page: %s", why, w.picture("failed"), w.text())
}

// eval answers what an expression is.
func eval[T any](w *tab, expression string) T {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.ctx, bound)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		w.fail(expression + ": " + err.Error())
	}
	return v
}

func (w *tab) text() string {
	ctx, stop := context.WithTimeout(w.ctx, 5*time.Second)
	defer stop()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits for an expression to become true.
func (w *tab) until(what, expression string) {
	w.t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if eval[bool](w, "!!("+expression+")") {
			return
		}
		if time.Now().After(deadline) {
			w.fail("not in " + bound.String() + ": " + what)
		}
		<-tick.C
	}
}

func quoted(s string) string { raw, _ := json.Marshal(s); return string(raw) }

// sees waits until texts are on the page.
func (w *tab) sees(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		w.until("it shows "+quoted(text), "document.body?.innerText.includes("+quoted(text)+")")
	}
}

// seesNot waits until a text is gone.
func (w *tab) seesNot(text string) {
	w.t.Helper()
	w.until("it no longer shows "+quoted(text), "document.body && !document.body.innerText.includes("+quoted(text)+")")
}

// button clicks the button with a text or name.
func (w *tab) button(name string) {
	w.t.Helper()
	w.click(fmt.Sprintf(`//button[normalize-space()=%[1]q or @aria-label=%[1]q]`, name))
}

func (w *tab) click(xpath string) {
	w.t.Helper()
	w.do(chromedp.Click(chromedp.Search(xpath), chromedp.NodeVisible))
}

// fill types into the field with a name or label, over what is there.
func (w *tab) fill(field, text string) {
	w.t.Helper()
	w.until("there is the field "+field, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll("input, textarea")].find((e) => (e.name === %[1]s || e.getAttribute("aria-label") === %[1]s) && e.checkVisibility())
		e?.focus()
		e?.select()
		return e && document.activeElement === e
	})()`, quoted(field)))
	w.do(send(input.InsertText, input.InsertTextParams{Text: text}))
}

// choose picks an option whose text holds a word.
func (w *tab) choose(label, option string) {
	w.t.Helper()
	pick := fmt.Sprintf(`(() => {
		const s = [...document.querySelectorAll("select")].find((s) => s.getAttribute("aria-label") === %[1]s || s.name === %[1]s)
		const o = s && [...s.options].find((o) => o.text.includes(%[2]s))
		if (!o) return false
		s.value = o.value
		s.dispatchEvent(new Event("change", { bubbles: true }))
		return true
	})()`, quoted(label), quoted(option))
	w.until("there is the choice "+option, pick)
}

// go to another view.
func (w *tab) visit(hash string) {
	w.t.Helper()
	eval[string](w, fmt.Sprintf("location.hash = %s", quoted(hash)))
}

var screenshots = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("screenshots")
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
})

// picture keeps a screenshot and answers where.
func (w *tab) picture(name string) string {
	w.t.Helper()
	dir, err := screenshots()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(w.ctx, bound)
	defer stop()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		w.t.Logf("no picture: %v", err)
		return ""
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-").Replace(w.t.Name()+"-"+name)+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("picture: %s", file)
	return file
}

// keys presses keys by their names, and types what is no name.
func (w *tab) keys(names ...string) {
	w.t.Helper()
	known := map[string]string{"ArrowDown": kb.ArrowDown, "ArrowUp": kb.ArrowUp, "Enter": kb.Enter, "Tab": kb.Tab, "Escape": kb.Escape}
	for _, name := range names {
		if k, ok := known[name]; ok {
			name = k
		}
		w.do(chromedp.KeyEvent(name))
		// A frame later whatever the key did is drawn.
		w.until("the next frame", `(() => { const w = window; w.__frame ??= 0; requestAnimationFrame(() => w.__frame++); const f = w.__frame; if (w.__since === undefined) w.__since = f; if (f - w.__since < 3) return false; delete w.__since; return true })()`)
	}
}
