// Package wire is what both ends of a plugin's connection must agree on before
// a word of a contract is spoken: the handshake, the contract versions, the
// greatest message.
//
// It promises that the handshake never changes; a new major version of a
// contract is a further entry of [Sets]. It knows neither the gateway nor what
// a plugin does.
package wire

import (
	"context"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
)

// MaxMessage is the greatest message in bytes, in both directions.
const MaxMessage = 4 << 20

// The names of what a process may serve.
const (
	Transport = "transport"
	AuthHook  = "authhook"
)

// V1 is the number that the first version of the contracts has in the
// handshake.
const V1 = 1

// Handshake is what a host and a plugin recognise each other by. It keeps a
// plugin that somebody starts by hand from waiting for a host; it is no secret.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{MagicCookieKey: "ROUSE_PLUGIN", MagicCookieValue: "0f6d0d7f4a5e4f57a3f1c3b0a9d2b7c1"}
}

// Sets has a set for each contract version. A host gives nil servers.
func Sets(t transportv1.TransportServiceServer, a authhookv1.AuthHookServiceServer) map[int]plugin.PluginSet {
	set := plugin.PluginSet{}
	host := t == nil && a == nil
	if host || t != nil {
		set[Transport] = transport{server: t}
	}
	if host || a != nil {
		set[AuthHook] = authHook{server: a}
	}
	return map[int]plugin.PluginSet{V1: set}
}

type transport struct {
	plugin.NetRPCUnsupportedPlugin
	server transportv1.TransportServiceServer
}

// GRPCServer implements plugin.GRPCPlugin.
func (p transport) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	transportv1.RegisterTransportServiceServer(s, p.server)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (transport) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return transportv1.NewTransportServiceClient(c), nil
}

type authHook struct {
	plugin.NetRPCUnsupportedPlugin
	server authhookv1.AuthHookServiceServer
}

// GRPCServer implements plugin.GRPCPlugin.
func (p authHook) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	authhookv1.RegisterAuthHookServiceServer(s, p.server)
	return nil
}

// GRPCClient implements plugin.GRPCPlugin.
func (authHook) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return authhookv1.NewAuthHookServiceClient(c), nil
}

var (
	_ plugin.GRPCPlugin = transport{}
	_ plugin.GRPCPlugin = authHook{}
)
