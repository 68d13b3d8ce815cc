package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rouse-run/rouse/gateway/failure"
)

type (
	code  string
	other string
)

func TestAFailureSaysAllItHas(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outside: %w", &failure.Error[code]{Code: "IT_BROKE", Detail: "it broke", Hint: "mend it", Cause: context.Canceled})
	if got := err.Error(); got != "outside: IT_BROKE: it broke: context canceled\nmend it" {
		t.Error(got)
	}
	if got := (&failure.Error[code]{Code: "IT_BROKE", Detail: "it broke"}).Error(); got != "IT_BROKE: it broke" {
		t.Error(got)
	}
	if !errors.Is(err, context.Canceled) {
		t.Error("the cause is hidden")
	}
	if failure.CodeOf[code](err) != "IT_BROKE" || failure.CodeOf[other](err) != "" || failure.CodeOf[code](context.Canceled) != "" {
		t.Error("a code is taken for another's")
	}
}
