package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printer writes for people: with colours on a terminal, plain everywhere else.
type printer struct {
	out    io.Writer
	colour bool
}

func newPrinter(r *run) *printer {
	env := r.environ()
	return &printer{out: r.io.Out, colour: isTerminal(r.io.Out) && env["NO_COLOR"] == "" && env["TERM"] != "dumb"}
}

// isTerminal says that somebody looks at w.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// The colours.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "36"
)

func (p *printer) paint(colour, text string) string {
	if !p.colour || colour == "" || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

// fields prints names and values below each other; empty values are left out.
func (p *printer) fields(pairs ...string) {
	width := 0
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, utf8.RuneCountInString(pairs[i]))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			p.printf("%s  %s\n", p.paint(dim, pad(pairs[i], width)), pairs[i+1])
		}
	}
}

// table prints rows under their heads. Cells may be painted: colours take no room.
func (p *printer) table(heads []string, rows [][]string) {
	width := make([]int, len(heads))
	for i, h := range heads {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], visible(cell))
		}
	}
	line := func(cells []string, colour string) {
		var b strings.Builder
		for i, cell := range cells {
			if i == len(cells)-1 {
				b.WriteString(p.paint(colour, cell))
				break
			}
			b.WriteString(p.paint(colour, cell) + strings.Repeat(" ", width[i]-visible(cell)+2))
		}
		p.printf("%s\n", strings.TrimRight(b.String(), " "))
	}
	line(heads, dim)
	for _, r := range rows {
		line(r, "")
	}
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

// visible is the room that a painted text takes.
func visible(s string) (n int) {
	skip := false
	for _, c := range s {
		switch {
		case c == '\x1b':
			skip = true
		case skip:
			skip = c != 'm'
		default:
			n++
		}
	}
	return n
}

// printable takes the control characters out of what others wrote, so that a terminal cannot be made to do things.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return c
		}
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' || (c >= '\u202a' && c <= '\u202e') || (c >= '\u2066' && c <= '\u2069') {
			return '�'
		}
		return c
	}, strings.ToValidUTF8(s, "�"))
}

// oneLine is printable without line ends, cut to a length in characters.
func oneLine(s string, most int) string {
	s = strings.Join(strings.Fields(printable(s)), " ")
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// age says how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Since(t)
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// ago is age within a sentence.
func ago(t time.Time) string {
	switch a := age(t); a {
	case "":
		return ""
	case "now":
		return "just now"
	default:
		return a + " ago"
	}
}

// status paints what states are called.
func (p *printer) status(s string) string {
	colour := ""
	switch s {
	case "running", "active", "online", "enabled", "claimed", "released", "delivered":
		colour = green
	case "paused", "stopping", "outstanding", "unclaimed", "superseded", "expired", "pending":
		colour = yellow
	case "killed", "failed", "disabled":
		colour = red
	case "stopped", "offline":
		colour = dim
	}
	return p.paint(colour, printable(s))
}

// compact is JSON on one line, or the text itself where it is none.
func compact(raw []byte) string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(raw)
	}
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return string(raw)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// principal is the short name of a principal URL.
func principal(url string) string {
	name := strings.TrimPrefix(url, "/principal/")
	return printable(strings.ReplaceAll(name, "%3A", ":"))
}

// line writes one JSON value on a line of its own.
func (r *run) line(v any) error {
	enc := json.NewEncoder(r.io.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
