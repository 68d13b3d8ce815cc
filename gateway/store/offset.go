package store

import (
	"strconv"

	"github.com/rouse-run/rouse/gateway/problem"
)

const offsetPrefix = "0000000000000000_"

// FormatOffset is the wire form of a position: it sorts as text.
func FormatOffset(position int64) string {
	var b [33]byte
	copy(b[:], offsetPrefix)
	for i := 32; i > 16; i-- {
		b[i] = byte('0' + position%10)
		position /= 10
	}
	return string(b[:])
}

// ParseOffset reads an offset that the server handed out; "-1" is the start.
func ParseOffset(s string) (int64, error) {
	if s == "-1" {
		return 0, nil
	}
	if len(s) == 33 && s[:17] == offsetPrefix {
		if n, err := strconv.ParseUint(s[17:], 10, 63); err == nil {
			return int64(n), nil
		}
	}
	return 0, problem.New(problem.OffsetInvalid, "The offset is not one the server handed out. Use -1 to read from the start.")
}
