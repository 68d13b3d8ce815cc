package observation

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustCron(t *testing.T, expression, zone string) Cron {
	t.Helper()
	c, err := ParseCron(expression, zone)
	if err != nil {
		t.Fatalf("%q in %q %v", expression, zone, err)
	}
	return c
}

// The rule of docs/schedules.md: a time of the wall clock comes once, also on the
// two days a year on which the wall clock leaves one out or shows one twice.
func TestADailyTimeComesOnceOnBothChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expression, zone, from string
		want                   []string
	}{
		"left out: at the end of the gap": {"30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00",
			[]string{"2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"}},
		"shown twice: the first time": {"30 1 * * *", "America/New_York", "2026-10-31T12:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"}},
		"asked in the repeated hour": {"30 1 * * *", "America/New_York", "2026-11-01T01:10:00-05:00",
			[]string{"2026-11-02T01:30:00-05:00"}},
		"asked in the repeated hour, due after it": {"30 3 * * *", "America/New_York", "2026-11-01T01:10:00-05:00",
			[]string{"2026-11-01T03:30:00-05:00"}},
		"a gap at midnight": {"0 0 * * *", "America/Asuncion", "2023-09-30T12:00:00-04:00",
			[]string{"2023-10-01T01:00:00-03:00", "2023-10-02T00:00:00-03:00"}},
		"several times in a gap are one": {"*/10 2 * * *", "Europe/Berlin", "2026-03-29T01:59:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		"half an hour of summer time": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		"a day that never was": {"0 12 30 12 *", "Pacific/Apia", "2011-12-28T00:00:00-10:00",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T12:00:00+14:00"}},
		"every hour goes by elapsed time, forward": {"30 * * * *", "America/New_York", "2026-03-08T01:00:00-05:00",
			[]string{"2026-03-08T01:30:00-05:00", "2026-03-08T03:30:00-04:00"}},
		"every hour goes by elapsed time, back": {"30 * * * *", "America/New_York", "2026-11-01T01:00:00-04:00",
			[]string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T02:30:00-05:00"}},
		"names and Sunday as 7": {"0 9 * JAN,mar 7", "", "2026-01-01T00:00:00Z",
			[]string{"2026-01-04T09:00:00Z", "2026-01-11T09:00:00Z"}},
		"a range to 7": {"0 9 * * 6-7", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", "2026-01-10T09:00:00Z"}},
		"seconds in front": {"*/20 * * * * *", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"}},
		"a name for a whole expression": {"@daily", "Europe/Berlin", "2026-01-01T00:00:00Z", []string{"2026-01-02T00:00:00+01:00"}},
	} {
		spec := mustCron(t, c.expression, c.zone)
		from := at(t, c.from)
		for i, want := range c.want {
			next := spec.Next(from)
			if !next.Equal(at(t, want)) {
				t.Errorf("%s: %d: %s, want %s", name, i, next, want)
			}
			from = next
		}
	}
}

// Whatever the zone and the day: a time a day comes once a day of the wall clock.
func TestEveryDayHasItsFiring(t *testing.T) {
	t.Parallel()
	zones := []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "America/Santiago", "Asia/Tehran", "UTC"}
	rapid.Check(t, func(r *rapid.T) {
		zone := rapid.SampledFrom(zones).Draw(r, "zone")
		loc, err := time.LoadLocation(zone)
		if err != nil {
			r.Fatal(err)
		}
		minute, hour := rapid.IntRange(0, 59).Draw(r, "minute"), rapid.IntRange(0, 23).Draw(r, "hour")
		c, err := ParseCron(strings.Join([]string{itoa(minute), itoa(hour), "* * *"}, " "), zone)
		if err != nil {
			r.Fatal(err)
		}
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, loc).AddDate(0, 0, rapid.IntRange(0, 730).Draw(r, "day")).Add(time.Duration(rapid.IntRange(0, 86399).Draw(r, "second")) * time.Second)
		last := c.Next(from)
		if !last.After(from) {
			r.Fatalf("%s is not after %s", last, from)
		}
		for range 10 {
			next := c.Next(last)
			a, b := naive(last.In(loc)), naive(next.In(loc))
			if days := b.Truncate(24 * time.Hour).Sub(a.Truncate(24 * time.Hour)); days != 24*time.Hour {
				r.Fatalf("after %s comes %s", last.In(loc), next.In(loc))
			}
			// Asked at any moment between the two, the answer is the same.
			mid := last.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(last))-1).Draw(r, "between")))
			if again := c.Next(mid); !again.Equal(next) {
				r.Fatalf("asked at %s: %s, want %s", mid.In(loc), again.In(loc), next.In(loc))
			}
			last = next
		}
	})
}

func itoa(n int) string { return strconv.Itoa(n) }

func TestBadCronsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"", ""}, {"* * * *", ""}, {"60 * * * *", ""}, {"* 24 * * *", ""}, {"* * 0 * *", ""}, {"* * * 13 *", ""}, {"* * * * 8", ""},
		{"0 0 30 2 *", ""}, {"@every 1s", ""}, {"TZ=UTC * * * * *", ""}, {"TZ=", ""}, {"CRON_TZ=x", ""}, {"* * * * *", "Local"}, {"* * * * *", "local"},
		{"* * * * *", "Mars/Olympus"}, {"* * * * *", "../../etc/passwd"}, {strings.Repeat("1,", 200) + "1 * * * *", ""}, {"*/0 * * * *", ""}, {"* * * * 7/0", ""},
		{"5-1 * * * *", ""}, {"\x00", ""}, {"* * * * *", "\x00"}} {
		if _, err := ParseCron(c[0], c[1]); err == nil {
			t.Errorf("%q in %q is taken", c[0], c[1])
		} else if c[0] != "" && strings.Contains(err.Error(), c[0]) {
			t.Errorf("the error holds the value: %v", err)
		}
	}
}

func TestCronPathsAreTheWires(t *testing.T) {
	t.Parallel()
	c := mustCron(t, "*/5 * * * *", "")
	if want := "_cron/eyJleHByZXNzaW9uIjoiKi81ICogKiAqICoiLCJ0aW1lem9uZSI6IlVUQyJ9"; c.Path() != want {
		t.Errorf("%s, want %s", c.Path(), want)
	}
	again, err := CronOfPath("/" + c.Path())
	if err != nil || again.Expression != c.Expression || again.Timezone != "UTC" {
		t.Errorf("%+v %v", again, err)
	}
	for _, p := range []string{"_cron/", "_cron/!!", "_cron/e30", "_cron/bnVsbA", "_cron/W10", "_cron/" + strings.TrimPrefix(c.Path(), "_cron/") + "=="} {
		if _, err := CronOfPath(p); err == nil {
			t.Errorf("%s is taken", p)
		}
	}
}

// The values are those that clients of the wire make.
func TestMembershipRefsAreTheWires(t *testing.T) {
	t.Parallel()
	for want, tags := range map[string]map[string]string{
		hash(`{}`):                {},
		hash(`{"a":"1","b":"2"}`): {"b": "2", "a": "1"},
		hash(`{"2":"x","10":"y","a":"z","é":"\""}`):   {"a": "z", "10": "y", "2": "x", "é": `"`},
		hash("{\"k\":\"\u2028<&>\\\\u2028\\u0001\"}"): {"k": "\u2028<&>\\u2028\x01"},
	} {
		if got := MembershipRef(tags, "/principal/user%3Akyle"); got != want+"-"+hash("/principal/user%3Akyle") {
			t.Errorf("%v: %s, want %s", tags, got, want)
		}
	}
	// FNV-1a of the empty text and of "a", from its definition.
	if hash("") != "cbf29ce484222325" || hash("a") != "af63dc4c8601ec8c" {
		t.Errorf("%s %s", hash(""), hash("a"))
	}
}
