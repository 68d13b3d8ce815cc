package main

import (
	"strings"
	"testing"
	"time"
)

func TestQuantilesAndMedians(t *testing.T) {
	t.Parallel()
	var s samples
	if s.quantile(0.5) != 0 {
		t.Error("no samples have a quantile")
	}
	for i := range 100 {
		s.add(time.Duration(100-i) * time.Millisecond)
	}
	if a, b, c := s.quantile(0.5), s.quantile(0.99), s.quantile(1); a != 51 || b != 100 || c != 100 {
		t.Errorf("p50 %v p99 %v max %v", a, b, c)
	}
	if a, b := median([]float64{3, 1, 2}), median([]float64{4, 1}); a != 2 || b != 2.5 {
		t.Errorf("medians %v %v", a, b)
	}
}

func TestAimsAreDecidedWhenEverySubjectIsThere(t *testing.T) {
	t.Parallel()
	r := newReport()
	r.add("b1.many", rouse, 30000)
	if met := rowOf(t, r, "b1.many").Met; met != nil {
		t.Error("an aim is decided without those it compares with")
	}
	r.add("b1.many", npmFile, 2000)
	r.add("b1.many", npmMem, 25000)
	line := rowOf(t, r, "b1.many")
	if line.Met == nil || !*line.Met || line.Ratios[npmFile] != 15 {
		t.Errorf("%+v", line)
	}
	r.add("b1.many", rouse, 20000)
	r.add("b1.many", rouse, 20000)
	if line = rowOf(t, r, "b1.many"); *line.Met {
		t.Error("the median does not decide")
	}
	for key, want := range map[string]bool{"b6.appends": true, "b6.claimed.p50": false} {
		r.add(key, "1k", 100)
		r.add(key, "100k", 50)
		r.add(key, "1M", 120)
		if line = rowOf(t, r, key); line.Met == nil || *line.Met != want {
			t.Errorf("%s: %+v", key, line)
		}
	}
	var out strings.Builder
	r.table(&out)
	if text := out.String(); !strings.Contains(text, "20 000") || !strings.Contains(text, "1k 100 · 100k 50.0 · 1M 120") {
		t.Errorf("the table:\n%s", text)
	}
}

func rowOf(t *testing.T, r *report, key string) row {
	t.Helper()
	for _, line := range r.rows() {
		if line.Figure == key {
			return line
		}
	}
	t.Fatalf("no row %s", key)
	return row{}
}

func TestEveryFigureIsListedOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range catalogue() {
		if seen[f.key] {
			t.Errorf("%s is listed twice", f.key)
		}
		seen[f.key] = true
		if (f.aim == "") != (f.met == nil) {
			t.Errorf("%s has an aim or a way to decide it, but not both", f.key)
		}
	}
}

func TestMessagesCarryTheirNumbers(t *testing.T) {
	t.Parallel()
	m := message(42, 256)
	if len(m) != 256 {
		t.Errorf("%d bytes", len(m))
	}
	var got []int
	numbers([]byte("["+string(m)+","+string(message(7, 300))+"]"), func(n int) { got = append(got, n) })
	if len(got) != 2 || got[0] != 42 || got[1] != 7 {
		t.Errorf("numbers %v", got)
	}
	if entityOf("/bench/e17/main") != 17 || entityOf("bench/e3/main") != 3 || entityOf("other/e3/main") != -1 {
		t.Error("an entity is not found by its stream")
	}
}

func TestFlagsAndVariables(t *testing.T) {
	t.Setenv("BENCH_REPEAT", "7")
	t.Setenv("BENCH_DURATION", "5s")
	o, err := parse([]string{"-repeat", "2", "-which", "b1,b5", "-entities", "1000,2000"})
	if err != nil || o.Repeat != 2 || o.Duration != 5*time.Second || o.Which != "b1,b5" || len(o.Entities) != 2 {
		t.Errorf("%+v %v", o, err)
	}
	for _, args := range [][]string{{"-which", "b99"}, {"-entities", "5"}, {"-repeat", "0"}, {"-duration", "1ms"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
