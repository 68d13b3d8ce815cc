package observation

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // time zones do not depend on the machine

	"github.com/robfig/cron/v3"

	"github.com/rouse-run/rouse/gateway/staterow"
)

// CronPrefix begins the paths of cron streams.
const CronPrefix = "_cron/"

// maxExpression bounds a cron expression in bytes.
const maxExpression = 256

var (
	errExpression = errors.New("is not a cron expression of five fields, or six with seconds in front, or never comes")
	errTimezone   = errors.New("is not an IANA time zone")
)

// Cron is a time that comes again, in a time zone.
type Cron struct {
	// Expression and Timezone are as they were given: the stream's path is made of
	// them.
	Expression, Timezone string

	spec *cron.SpecSchedule // in UTC: its times are read as wall-clock times
	zone *time.Location
}

// ParseCron reads an expression of five fields (minute, hour, day of month,
// month, day of week; names, 7 for Sunday, a sixth field for seconds in front,
// and @hourly to @yearly are understood). An empty timezone means UTC. The error
// says what is wrong without the value.
func ParseCron(expression, timezone string) (Cron, error) {
	c := Cron{Expression: expression, Timezone: timezone}
	if timezone == "" {
		c.Timezone = "UTC"
	}
	var err error
	if c.zone, err = time.LoadLocation(c.Timezone); err != nil || strings.EqualFold(c.Timezone, "local") {
		return c, errTimezone
	}
	fields := strings.Fields(expression)
	// Neither zones nor durations: both have a place of their own.
	if len(expression) > maxExpression || len(fields) == 0 || strings.Contains(expression, "=") || strings.HasPrefix(expression, "@every") {
		return c, errExpression
	}
	if n := len(fields); n == 5 || n == 6 {
		if fields[n-1], err = sundays(fields[n-1]); err != nil {
			return c, err
		}
	}
	s, err := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).
		Parse(strings.Join(fields, " "))
	spec, ok := s.(*cron.SpecSchedule)
	if err != nil || !ok {
		return c, errExpression
	}
	spec.Location = time.UTC
	c.spec = spec
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return c, errExpression // the thirtieth of February
	}
	return c, nil
}

// sundays rewrites a day-of-week field in which 7 stands for Sunday.
func sundays(field string) (string, error) {
	if !strings.Contains(field, "7") {
		return field, nil
	}
	var out []string
	for part := range strings.SplitSeq(field, ",") {
		span, step, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if last != "7" && first != "7" || errA != nil || errB != nil || a < 0 || b > 7 || a > b {
			out = append(out, part)
			continue
		}
		by := 1
		if stepped {
			var err error
			if by, err = strconv.Atoi(step); err != nil || by < 1 {
				return "", errExpression
			}
		}
		for ; a <= b; a += by {
			out = append(out, strconv.Itoa(a%7))
		}
	}
	return strings.Join(out, ","), nil
}

// Path is the path of the stream that ticks so, without a leading slash.
func (c Cron) Path() string {
	return CronPrefix + base64.RawURLEncoding.EncodeToString([]byte(staterow.Encode(struct {
		Expression string `json:"expression"`
		Timezone   string `json:"timezone"`
	}{c.Expression, c.Timezone})))
}

// CronOfPath reads the path of a cron stream, with or without a leading slash.
func CronOfPath(path string) (Cron, error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(strings.TrimPrefix(path, "/"), CronPrefix))
	m := object(json.RawMessage(raw))
	if err != nil || m == nil {
		return Cron{}, errors.New("is not the path of a cron stream")
	}
	c, err := ParseCron(text(m["expression"]), text(m["timezone"]))
	if err == nil && "/"+c.Path() != "/"+strings.TrimPrefix(path, "/") {
		err = errors.New("is not the path of a cron stream as the gateway writes it")
	}
	return c, err
}

// everyHour says that the expression does not choose hours: it follows the clock
// as it runs, and what daylight saving does to the wall clock does not matter.
func (c Cron) everyHour() bool {
	const hours = 1<<24 - 1
	return bits.OnesCount64(c.spec.Hour&hours) == 24
}

// Next is the first time strictly after t; zero when there is none within five
// years.
//
// An expression that chooses hours names times of the wall clock, and each comes
// once: a time that the change to summer time leaves out comes at the first
// moment after the gap, and one that the change back repeats comes the first
// time only. An expression for every hour goes by elapsed time.
func (c Cron) Next(t time.Time) time.Time {
	if c.everyHour() {
		local := *c.spec
		local.Location = c.zone
		return local.Next(t.In(c.zone)).UTC()
	}
	wall := naive(t.In(c.zone))
	for {
		if wall = c.spec.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if at := c.instant(wall); at.After(t) {
			return at
		}
	}
}

// naive is the wall-clock time as if it were UTC.
func naive(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant is the first moment at which the wall clock shows a time, or, for one
// it never shows, the end of the gap.
func (c Cron) instant(wall time.Time) time.Time {
	// Two candidates: by the offset well before, and by the one well after.
	_, before := wall.Add(-36 * time.Hour).In(c.zone).Zone()
	_, after := wall.Add(36 * time.Hour).In(c.zone).Zone()
	early, late := wall.Add(-time.Duration(max(before, after))*time.Second), wall.Add(-time.Duration(min(before, after))*time.Second)
	shows := func(t time.Time) bool { return naive(t.In(c.zone)).Equal(wall) }
	switch {
	case shows(early):
		return early.UTC()
	case shows(late):
		return late.UTC()
	}
	// In the gap: the change lies between the two.
	start, end := early.Add(-time.Hour), late.Add(time.Hour)
	_, from := start.In(c.zone).Zone()
	for end.Sub(start) > time.Second {
		mid := start.Add(end.Sub(start) / 2).Truncate(time.Second)
		if _, off := mid.In(c.zone).Zone(); off == from {
			start = mid
		} else {
			end = mid
		}
	}
	return end.UTC()
}
