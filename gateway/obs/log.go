package obs

import (
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// NewLogger writes to w in the given format ("json", else text). Values under names that mean a secret, and the
// passwords of URLs, are replaced; types that hide themselves (config.Secret) are a first line of defence, this is the
// second.
func NewLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: redact}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

var (
	secretName  = regexp.MustCompile(`(?i)(^|_|-|\.)(token|password|secret|authorization|cookie|dsn|keys?)$`)
	urlPassword = regexp.MustCompile(`(://[^/\s:@]*:)[^@\s/]+@`)
	bearer      = regexp.MustCompile(`(?i)(bearer\s+)[A-Za-z0-9._~+/=-]+`)
	ownToken    = regexp.MustCompile(`(rouse_(?:ct|ht|wt|jt|pat)_)[A-Za-z0-9._~+/=-]+`)
)

func redact(_ []string, a slog.Attr) slog.Attr {
	switch {
	case secretName.MatchString(a.Key) && a.Value.Kind() != slog.KindGroup:
		a.Value = slog.StringValue("[redacted]")
	case a.Value.Kind() == slog.KindString:
		a.Value = slog.StringValue(Scrub(a.Value.String()))
	case a.Value.Kind() == slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(Scrub(err.Error()))
		}
	}
	return a
}

// Scrub hides the passwords of URLs, bearer tokens and the gateway's own tokens within a text.
func Scrub(s string) string {
	if strings.Contains(s, "://") {
		s = urlPassword.ReplaceAllString(s, "${1}[redacted]@")
	}
	if strings.Contains(s, "earer") || strings.Contains(s, "EARER") {
		s = bearer.ReplaceAllString(s, "${1}[redacted]")
	}
	if strings.Contains(s, "rouse_") {
		s = ownToken.ReplaceAllString(s, "${1}[redacted]")
	}
	return s
}
