package shape

import (
	crand "crypto/rand"
	"encoding/base32"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

// handle is what a client carries from request to request, so that any gateway
// can go on: which shape it is, and what its first rows showed. A client that
// makes one up deceives nobody but itself.
type handle struct {
	id    string
	nonce string
	snap  store.ShapeSnapshot
}

func newHandle(id string, snap store.ShapeSnapshot) handle { return handle{id, nonce(), snap} }

// nonce makes handles of one shape differ: a client must not take a new one for
// the one it was told to drop.
func nonce() string {
	var b [5]byte
	_, _ = crand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// Handles are id-nonce-lsn.time.xmin.xmax.xip.xip…, numbers in base 36; the
// transactions count from xmin.
func (h handle) String() string {
	num := func(n uint64) string { return strconv.FormatUint(n, 36) }
	parts := []string{num(h.snap.LSN), num(uint64(h.snap.At.UnixMilli())), num(h.snap.XMin), num(h.snap.XMax - h.snap.XMin)}
	for _, x := range h.snap.InProgress {
		parts = append(parts, num(x-h.snap.XMin))
	}
	return h.id + "-" + h.nonce + "-" + strings.Join(parts, ".")
}

// maxHandle bounds what is parsed.
const maxHandle = 16 << 10

func parseHandle(s string) (h handle, ok bool) {
	parts := strings.Split(s, "-")
	if len(s) > maxHandle || len(parts) != 3 {
		return h, false
	}
	h.id, h.nonce = parts[0], parts[1]
	var nums []uint64
	for _, p := range strings.Split(parts[2], ".") {
		n, err := strconv.ParseUint(p, 36, 63)
		if err != nil {
			return h, false
		}
		nums = append(nums, n)
	}
	if len(nums) < 4 {
		return h, false
	}
	h.snap.LSN, h.snap.At = nums[0], time.UnixMilli(int64(nums[1]))
	h.snap.XMin, h.snap.XMax = nums[2], nums[2]+nums[3]
	for _, n := range nums[4:] {
		h.snap.InProgress = append(h.snap.InProgress, h.snap.XMin+n)
	}
	return h, true
}

// shown reports whether the first rows show a transaction already. What ended
// after the snapshot's place in the log cannot be among them; so its id, which
// wraps around, is looked at only near by.
func (h handle) shown(t *transaction) bool { return t.end <= h.snap.LSN && h.snap.Shows(t.xid) }

// Offsets are <position in the log>_0: all that ended up to there has been told.
func formatOffset(lsn uint64) string { return strconv.FormatUint(lsn, 10) + "_0" }

func parseOffset(s string) (uint64, bool) {
	lsn, op, ok := strings.Cut(s, "_")
	n, err := strconv.ParseUint(lsn, 10, 64)
	if _, e := strconv.ParseUint(op, 10, 64); !ok || err != nil || e != nil {
		return 0, false
	}
	return n, true
}
