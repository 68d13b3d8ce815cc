package problem

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEveryCodeIsUpperSnakeWithAnErrorStatus(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[A-Z][A-Z_]+[A-Z]$`)
	for _, c := range Codes() {
		info := c.Info()
		if !form.MatchString(string(c)) || info.Status < 400 || info.Status > 599 || info.Title == "" {
			t.Errorf("code %s is malformed: %+v", c, info)
		}
	}
}

func TestWriteShowsPublicTextAndHidesTheCause(t *testing.T) {
	t.Parallel()
	err := Wrap(DatabaseUnavailable, errors.New("dial postgres://u:secret@h"), "Try again.").
		WithDetails(Detail{Path: "/a", Message: "is required"}).WithMeta("generation", 7)
	rec := httptest.NewRecorder()
	Write(rec, "req-1", err)
	if rec.Code != 503 || rec.Header().Get("Content-Type") != "application/problem+json" || rec.Header().Get("Retry-After") != "1" {
		t.Fatalf("status %d, headers %v", rec.Code, rec.Header())
	}
	if strings.Contains(rec.Body.String(), "secret") {
		t.Fatalf("the cause leaked: %s", rec.Body)
	}
	var got struct {
		Code     string
		Instance string
		Errors   []Detail
		Error    struct {
			Code       string
			Message    string
			Generation int
			Details    []Detail
		}
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Code != "DATABASE_UNAVAILABLE" || got.Instance != "req-1" || got.Error.Code != got.Code ||
		got.Error.Message != "Try again." || got.Error.Generation != 7 || len(got.Errors) != 1 || len(got.Error.Details) != 1 {
		t.Fatalf("body %s", rec.Body)
	}
}

func TestErrorsMatchByCode(t *testing.T) {
	t.Parallel()
	err := error(Newf(EpochHeld, "held by %s", "x").WithRetryAfter(time.Second))
	if !errors.Is(err, New(EpochHeld, "")) || errors.Is(err, New(EpochStale, "")) || CodeOf(err) != EpochHeld {
		t.Fatal("matching by code is broken")
	}
	if From(errors.New("x")).Code != Internal || CodeOf(errors.New("x")) != "" {
		t.Fatal("an unknown error must read as internal")
	}
}
