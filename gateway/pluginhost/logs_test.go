package pluginhost

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/obs"
)

// What a plugin prints of tokens and of fields whose names mean a secret is neither
// passed on nor, of tokens, kept.
func TestWhatPluginsPrintIsScrubbed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := newOutput(obs.NewLogger(&log, slog.LevelDebug, "json"))
	for _, line := range []string{
		`{"@level":"info","@message":"sent","password":"hunter2","deep":{"api_token":"hunter2","n":7}}`,
		`got {"claimToken":"rouse_ct_k1.hunter2-x_y"}`,
		"rouse_pat_hunter2",
	} {
		if _, err := o.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, `"fields":{"deep":{"api_token":"[redacted]","n":7},"password":"[redacted]"}`) || !strings.Contains(got, "rouse_ct_[redacted]") {
		t.Error(got)
	}
	for _, l := range o.lines()[1:] {
		if strings.Contains(l.Text, "hunter2") {
			t.Error(l.Text)
		}
	}
}

// What floods the log is cut, and what is meant to be whole is not.
func TestHowMuchOfTheOutputIsPassedOn(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{passedLines: passedLines, ownLines: 200} {
		var log bytes.Buffer
		o := newOutput(obs.NewLogger(&log, slog.LevelInfo, "json"))
		o.allow(most)
		o.second = time.Now().Add(time.Hour) // no second ends meanwhile
		for range 200 {
			if _, err := o.Write([]byte(`{"@level":"info","@message":"decision"}` + "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), `"decision"`); n != want || len(o.lines()) != 200 {
			t.Errorf("%d lines of %d are passed on, %d kept", n, want, len(o.lines()))
		}
	}
}
