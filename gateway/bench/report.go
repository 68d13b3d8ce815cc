package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/proc"
)

// Who a figure belongs to.
const (
	rouse   = "rouse"
	npmFile = "npm file"
	npmMem  = "npm memory"
	pgbench = "pgbench"
	river   = "river"
)

// report gathers every sample of a run.
type report struct {
	mu      sync.Mutex
	samples map[string]map[string][]float64 // figure → subject → one value a repetition
	failed  []string
	began   time.Time
	load    float64
}

func newReport() *report {
	return &report{samples: map[string]map[string][]float64{}, began: time.Now(), load: proc.Load()}
}

func (r *report) add(figure, subject string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.samples[figure] == nil {
		r.samples[figure] = map[string][]float64{}
	}
	r.samples[figure][subject] = append(r.samples[figure][subject], value)
}

// fail notes what could not be measured. The rest of the run goes on.
func (r *report) fail(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Sprintf("%s: %v", what, err))
}

// values are the medians of one figure.
type values map[string]float64

// is says that there is a value for each subject.
func (v values) is(subjects ...string) bool {
	for _, s := range subjects {
		if _, ok := v[s]; !ok {
			return false
		}
	}
	return true
}

// row is a line of the table and of the JSON.
type row struct {
	ID      string               `json:"id"`
	Figure  string               `json:"figure"`
	Title   string               `json:"title"`
	Unit    string               `json:"unit"`
	Values  values               `json:"medians"`
	Ratios  map[string]float64   `json:"ratios"` // rouse ÷ subject
	Samples map[string][]float64 `json:"samples"`
	Aim     string               `json:"aim,omitempty"`
	Met     *bool                `json:"met,omitempty"`
}

func (r *report) rows() []row {
	r.mu.Lock()
	defer r.mu.Unlock()
	medians := func(figure string) values {
		v := values{}
		for subject, s := range r.samples[figure] {
			v[subject] = median(s)
		}
		return v
	}
	var out []row
	for _, f := range catalogue() {
		v := medians(f.key)
		if len(v) == 0 {
			continue
		}
		line := row{ID: f.id, Figure: f.key, Title: f.title, Unit: f.unit, Values: v, Ratios: map[string]float64{}, Samples: r.samples[f.key], Aim: f.aim}
		for s, x := range v {
			if s != rouse && v.is(rouse) && x != 0 {
				line.Ratios[s] = v[rouse] / x
			}
		}
		if f.met != nil {
			if met, known := f.met(v, medians); known {
				line.Met = &met
			}
		}
		out = append(out, line)
	}
	return out
}

func (r *report) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nfigure\tunit\trouse\tin the same run\taim\tmet")
	for _, line := range r.rows() {
		own := "–"
		if line.Values.is(rouse) {
			own = number(line.Values[rouse])
		}
		var others []string
		for _, s := range slices.SortedFunc(maps.Keys(line.Values), func(a, b string) int {
			return cmp.Or(cmp.Compare(size(a), size(b)), cmp.Compare(a, b))
		}) {
			if s == rouse {
				continue
			}
			text := s + " " + number(line.Values[s])
			if ratio, ok := line.Ratios[s]; ok {
				text += fmt.Sprintf(" (%s×)", number(ratio))
			}
			others = append(others, text)
		}
		met := ""
		if line.Met != nil {
			met = map[bool]string{true: "yes", false: "no"}[*line.Met]
		}
		fmt.Fprintf(t, "%s %s\t%s\t%s\t%s\t%s\t%s\n", line.ID, line.Title, line.Unit, own, strings.Join(others, " · "), line.Aim, met)
	}
	_ = t.Flush()
	fmt.Fprintf(w, "\nMedians; (n×) is rouse divided by the other. Load average %.1f before, %.1f after, on %d cores.\n", r.load, proc.Load(), runtime.NumCPU())
	for _, f := range r.failed {
		fmt.Fprintln(w, "NOT MEASURED", f)
	}
}

// number prints three significant digits.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + " " + s[i:]
		}
		return s
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// write keeps the run as JSON.
func (r *report) write(path string, o options, versions map[string]string) error {
	doc := struct {
		Began    time.Time         `json:"began"`
		Seconds  float64           `json:"seconds"`
		Cores    int               `json:"cores"`
		Load     [2]float64        `json:"load_average"`
		Options  options           `json:"options"`
		Postgres map[string]string `json:"postgres_settings"`
		Versions map[string]string `json:"versions"`
		Rows     []row             `json:"rows"`
		Failed   []string          `json:"not_measured"`
	}{r.began.UTC(), time.Since(r.began).Seconds(), runtime.NumCPU(), [2]float64{r.load, proc.Load()}, o, proc.Settings(), versions, r.rows(), r.failed}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
