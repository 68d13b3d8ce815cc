// Package access tries who may do what on whole gateways: several auth hooks beside each other, policies, rates, and
// client certificates.
package access

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
