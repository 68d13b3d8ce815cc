// Package access tries who may do what on whole gateways: several auth hooks beside each other, policies, rates, and
// client certificates.
package access

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) {
	servertest.ServePlugins()
	goleak.VerifyTestMain(m)
}
