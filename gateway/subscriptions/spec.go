package subscriptions

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/reserved"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	webhookType  = "webhook"
	pullWakeType = "pull-wake"

	minLease, defaultLease, maxLease = time.Second, 30 * time.Second, 10 * time.Minute

	maxStreams = 1000
	// maxSegments bounds a pattern. Streams of deeper paths are matched by none.
	maxSegments    = 32
	maxDescription = 4096
	// maxTarget bounds a transport's target in bytes, as in dispatch policies.
	maxTarget = 16 << 10
)

// spec is the body of a PUT.
type spec struct {
	Type       string   `json:"type"`
	Pattern    *string  `json:"pattern"`
	Streams    []string `json:"streams"`
	Webhook    *webhook `json:"webhook"`
	WakeStream *string  `json:"wake_stream"`
	// Target is what the transport of another type is told. It is ours, not the
	// protocol's: with the protocol's types it is passed over.
	Target      json.RawMessage `json:"target"`
	LeaseTTL    *int64          `json:"lease_ttl_ms"`
	Description *string         `json:"description"`
}

type webhook struct {
	URL string `json:"url"`
}

// decode reads a body, whose absence means {}, into v: one JSON object in
// UTF-8 without duplicate keys. Members that v does not have are passed over,
// as the protocol's servers do.
func (h *Handler) decode(q *request, v any) error {
	body, release, err := h.bodies.Read(q.w, q.Request)
	defer release()
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		body = []byte("{}")
	}
	if err := jsonv2.Unmarshal(body, v); err != nil {
		// Its text can quote the body.
		return problem.New(problem.InvalidRequest, "The body is not one JSON object of the expected form.").
			WithDetails(problem.Detail{Path: "/", Message: "is not valid JSON, or a member has another type"})
	}
	return nil
}

// check turns a body into a subscription's configuration.
func (s *spec) check() (store.SubscriptionSpec, error) {
	out := store.SubscriptionSpec{Type: s.Type, Lease: defaultLease}
	own := s.Type != webhookType && s.Type != pullWakeType
	if own && (s.Type == "" || len(s.Target) == 0 || string(s.Target) == "null") {
		return out, invalid("/type", `must be "webhook" or "pull-wake"; with a target, the type of a transport`)
	}
	if s.Pattern != nil && *s.Pattern != "" {
		var why string
		if out.Pattern, why = relative(*s.Pattern, true); why != "" {
			return out, invalid("/pattern", why)
		}
	}
	var err error
	if out.Streams, err = paths(s.Streams); err != nil {
		return out, err
	}
	if out.Pattern == "" && len(out.Streams) == 0 {
		return out, invalid("/pattern", "is needed unless streams are given")
	}
	if s.LeaseTTL != nil {
		out.Lease = time.Duration(*s.LeaseTTL) * time.Millisecond
		if *s.LeaseTTL < minLease.Milliseconds() || *s.LeaseTTL > maxLease.Milliseconds() {
			return out, invalid("/lease_ttl_ms", "must be an integer from 1000 to 600000")
		}
	}
	if s.Description != nil {
		out.Description = *s.Description
		if len(out.Description) > maxDescription || strings.Contains(out.Description, "\x00") {
			return out, invalid("/description", "must be at most 4096 bytes of text")
		}
	}
	if own {
		out.Target, err = transportTarget(s.Type, s.Target)
		return out, err
	}
	if s.Type == webhookType {
		if s.Webhook == nil || s.Webhook.URL == "" {
			return out, invalid("/webhook/url", "is needed")
		}
		if strings.Contains(s.Webhook.URL, "\x00") {
			return out, invalid("/webhook/url", "is not a URL")
		}
		out.WebhookURL = s.Webhook.URL
		return out, nil
	}
	if s.WakeStream == nil || *s.WakeStream == "" {
		return out, invalid("/wake_stream", "is needed")
	}
	var why string
	if out.WakeStream, why = relative(*s.WakeStream, false); why != "" {
		return out, invalid("/wake_stream", why)
	}
	// Each wake would be work to wake for. Patterns pass over wake streams.
	for _, p := range out.Streams {
		if p == out.WakeStream {
			return out, invalid("/wake_stream", "is one of the streams")
		}
	}
	return out, nil
}

// paths checks a list of streams.
func paths(list []string) ([]string, error) {
	if len(list) > maxStreams {
		return nil, invalid("/streams", "has more than 1000 elements")
	}
	out := make([]string, len(list))
	for i, p := range list {
		var why string
		if out[i], why = relative(p, false); why != "" {
			return nil, invalid("/streams", why)
		}
	}
	return out, nil
}

// relative is a stream's path, or a pattern of such, without the slashes
// around it; why says what is wrong with it.
func relative(s string, pattern bool) (path, why string) {
	path = strings.Trim(s, "/")
	if rest, ok := strings.CutPrefix("/"+path, streamsMount+"/"); ok {
		path = rest // as clients name streams that they reach there
	}
	switch {
	case path == "":
		return "", "names no stream"
	case !printable(path, maxPath):
		return "", "must be 1 to 1024 bytes of UTF-8 without control characters"
	}
	if pattern && strings.Count(path, "/") >= maxSegments {
		return "", "has more than 32 segments"
	}
	for i, seg := range strings.Split(path, "/") {
		switch {
		case seg == "" || seg == "." || seg == "..":
			return "", "has an empty segment, or one of dots"
		case pattern && strings.Contains(seg, "*") && seg != "*" && seg != "**":
			return "", "has an asterisk inside a segment: * stands for one segment, ** for any number"
		}
		if i == 0 && (!pattern || !strings.Contains(seg, "*")) {
			// What the gateway writes below such names is watched by nobody.
			if taken, readable := reserved.Root(seg); taken && (seg[0] == '_' || !pattern || !readable) {
				return "", "is reserved for the gateway"
			}
		}
	}
	return path, ""
}

// checkScheme refuses plain http to other machines, whatever is allowed here
// for entities: the protocol has it for a developer's own machine only.
func checkScheme(raw string) error {
	u, err := url.Parse(raw)
	if err == nil && (u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())) {
		return nil
	}
	return problem.New(problem.WebhookURLRejected, "The webhook url must be https; plain http is for this machine only.").
		WithDetails(problem.Detail{Path: "/webhook/url", Message: "must be https"})
}

func loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
