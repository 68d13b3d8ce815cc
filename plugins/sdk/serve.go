package sdk

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

// stderr is the process's own, before go-plugin puts a pipe in its place.
var stderr io.Writer = os.Stderr

// parentLook is how often a plugin looks whether its gateway is still there.
const parentLook = 250 * time.Millisecond

// Logger logs to the gateway. Use it instead of printing; never log a
// notification, a signature or a credential.
func Logger() *slog.Logger { return slog.New(newHandler(stderr)) }

// newHandler writes the lines that a gateway reads as log entries.
func newHandler(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			a.Key = "@timestamp"
		case slog.LevelKey:
			return slog.String("@level", strings.ToLower(a.Value.String()))
		case slog.MessageKey:
			a.Key = "@message"
		}
		return a
	}})
}

// ServeTransport serves t until the gateway ends the process. It is the last
// call of main. Started by hand, it says what it is and ends with code 1.
func ServeTransport(t Transport) { serve(&transportServer{t: t, log: Logger()}, nil) }

// ServeAuthHook serves h until the gateway ends the process. It is the last
// call of main. Started by hand, it says what it is and ends with code 1.
func ServeAuthHook(h AuthHook) { serve(nil, &authHookServer{h: h, log: Logger()}) }

func serve(t transportv1.TransportServiceServer, a authhookv1.AuthHookServiceServer) {
	conceal()
	go watchParent(os.Getppid(), time.NewTicker(parentLook).C, os.Exit)
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: wire.Sets(t, a),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Output: stderr, Level: hclog.Warn, JSONFormat: true}),
	})
}

// watchParent ends the process when its parent is another one than at the
// start: the gateway is gone, and could not say so.
func watchParent(parent int, look <-chan time.Time, exit func(int)) {
	for range look {
		if os.Getppid() != parent {
			exit(1)
			return
		}
	}
}

// guard turns a panic of a plugin's function into a call of failed.
func guard(ctx context.Context, log *slog.Logger, call string, failed func(error)) {
	if v := recover(); v != nil {
		log.ErrorContext(ctx, "the plugin panicked", "call", call, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		failed(fmt.Errorf("the plugin panicked in %s", call))
	}
}
