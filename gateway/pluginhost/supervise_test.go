package pluginhost

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

// closedFirst is a plugin whose socket is gone a moment before its process is.
type closedFirst struct {
	transportv1.TransportServiceClient
	asked func()
}

func (f closedFirst) Health(context.Context, *transportv1.HealthRequest, ...grpc.CallOption) (*transportv1.HealthResponse, error) {
	f.asked()
	return nil, status.Error(codes.Unavailable, "the connection is closed")
}

// Whoever looks for why a plugin fails looks for the end of a process elsewhere
// than for a hang.
func TestAnEndSeenAtTheSocketFirstIsACrash(t *testing.T) {
	t.Parallel()
	p := &process{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}, exited: make(chan struct{}), err: errors.New("exit status 4")}
	asked := 0
	i := &instance{proc: p, desc: description{}, transport: closedFirst{asked: func() {
		if asked++; asked == missesMost {
			time.AfterFunc(20*time.Millisecond, func() { close(p.exited) })
		}
	}}}
	c := newChild("pager", wire.Transport, Spec{}, &deps{log: slog.New(slog.DiscardHandler), pace: usualPace}, newOutput(slog.New(slog.DiscardHandler)))
	c.doubt()
	if err := c.watch(t.Context(), i); CodeOf(err) != CodeCrashed {
		t.Errorf("%s: %v", CodeOf(err), err)
	}
}
