package pluginhost

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/obs"
)

const (
	// keptLines and keptLine bound what is remembered of a plugin's output; longer
	// lines are cut.
	keptLines = 500
	keptLine  = 1 << 10
	// passedLines is how many lines a second go to the gateway's log, ownLines how
	// many of an auth hook that is built in: its log of decisions is meant to be whole.
	passedLines = 20
	ownLines    = 5000
)

// LogLine is a line of a plugin's output.
type LogLine struct {
	At   time.Time
	Text string
}

// output takes what a plugin prints: it remembers the end of it and passes some
// of it on. It is never full, and never grows.
type output struct {
	log *slog.Logger // with the plugin's name

	mu      sync.Mutex
	most    int // lines a second that are passed on
	partial []byte
	cut     bool // the rest of the line is dropped
	ring    []LogLine
	next    int
	total   uint64

	second  time.Time
	passed  int
	dropped int
}

func newOutput(log *slog.Logger) *output { return &output{log: log, most: passedLines} }

// allow changes how many lines a second are passed on.
func (o *output) allow(most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.most = most
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := keptLine - len(o.partial); len(line) > room {
			line, o.cut = line[:room], true
		}
		o.partial = append(o.partial, line...)
		if ended {
			o.line()
		}
		p = rest
	}
	return n, nil
}

// line ends the current one.
func (o *output) line() {
	text := strings.TrimRight(strings.ToValidUTF8(string(o.partial), "?"), "\r")
	if o.cut {
		text += "…"
	}
	o.partial, o.cut = o.partial[:0], false
	if text == "" {
		return
	}
	o.add(obs.Scrub(text))
}

func (o *output) add(text string) {
	l := LogLine{At: time.Now(), Text: text}
	if len(o.ring) < keptLines {
		o.ring = append(o.ring, l)
	} else {
		o.ring[o.next] = l
		o.next = (o.next + 1) % keptLines
	}
	o.total++
	if l.At.Sub(o.second) >= time.Second {
		if o.dropped > 0 {
			o.log.Warn("the plugin prints more than is passed on", "lines", o.dropped)
		}
		o.second, o.passed, o.dropped = l.At, 0, 0
	}
	if o.passed++; o.passed > o.most {
		o.dropped++
		return
	}
	pass(o.log, text)
}

// pass logs a line at the level that it names.
func pass(log *slog.Logger, text string) {
	var entry struct {
		Level   string `json:"@level"`
		Message string `json:"@message"`
	}
	if json.Unmarshal([]byte(text), &entry) != nil || entry.Message == "" {
		log.Debug("plugin output", "line", text)
		return
	}
	level := slog.LevelInfo
	switch entry.Level {
	case "trace", "debug":
		level = slog.LevelDebug
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	var fields map[string]any
	_ = json.Unmarshal([]byte(text), &fields)
	for k := range fields {
		if strings.HasPrefix(k, "@") {
			delete(fields, k)
		}
	}
	if len(fields) > 0 {
		log = log.With(slog.Attr{Key: "fields", Value: value(fields)})
	}
	say := map[slog.Level]func(string, ...any){slog.LevelDebug: log.Debug, slog.LevelInfo: log.Info, slog.LevelWarn: log.Warn, slog.LevelError: log.Error}
	say[level](entry.Message)
}

// value is JSON in the log's own form, so that the log sees which names mean a
// secret.
func value(v any) slog.Value {
	m, ok := v.(map[string]any)
	if !ok {
		return slog.AnyValue(v)
	}
	attrs := make([]slog.Attr, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		attrs = append(attrs, slog.Attr{Key: k, Value: value(m[k])})
	}
	return slog.GroupValue(attrs...)
}

// lines gives what is remembered, oldest first.
func (o *output) lines() []LogLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append(append([]LogLine(nil), o.ring[o.next:]...), o.ring[:o.next]...)
}
