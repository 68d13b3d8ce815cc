package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. It is written as a number with or without a unit: 1048576, 512KiB, 16MiB, 1GiB (KB, MB, GB count by
// thousands).
type Bytes int64

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

var units = []struct {
	suffix string
	factor Bytes
}{{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// UnmarshalText reads a size.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, factor := strings.TrimSpace(string(text)), Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, factor = strings.TrimSpace(rest), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(factor) {
		return fmt.Errorf("not a size such as 16MiB")
	}
	*b = Bytes(n) * factor
	return nil
}

// MarshalText writes the size in the largest unit that fits without a remainder.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

func (b Bytes) String() string {
	for _, u := range []int{2, 1, 0} {
		if f := units[u].factor; b >= f && b%f == 0 {
			return strconv.FormatInt(int64(b/f), 10) + units[u].suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}
