package config

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a value that must not be seen: whatever prints it, prints a placeholder. Reveal is the only way to it.
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal gives the value itself.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.value == "" }

// String hides the value; an empty one stays empty, so that "not set" can be seen.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return redacted
}

// Format hides the value from every verb of fmt, those that look into structs included.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value from encoders of text, JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON hides the value.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// UnmarshalText takes the value from a file, an environment variable or a flag.
func (s *Secret) UnmarshalText(text []byte) error {
	s.value = string(text)
	return nil
}
