package control

import (
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/intake"
)

const (
	// uploadMemory is what the files that are taken in may fill together, in bytes:
	// two of the largest, beside small ones. Others wait for uploadWait.
	uploadMemory = 64 << 20
	uploadWait   = 30 * time.Second
	// uploadOwn is what those of one principal may: one of the largest.
	uploadOwn = uploadMemory / 2
	// uploadWhole is how much of a file has come before all its memory is given.
	uploadWhole = 256 << 10
	// uploadRush is how many bytes a second must come of a file while others wait.
	uploadRush = 256 << 10
)

// uploadRoom is the memory for files on their way to entities: what all of them
// may fill, and of that what those of one principal may, so that nobody alone
// keeps the others waiting.
type uploadRoom struct {
	all  *intake.Budget
	wait time.Duration

	mu  sync.Mutex
	own map[uploader]*ownUploads // of those who are sending something
}

type uploader struct {
	service   int32
	principal string
}

type ownUploads struct {
	*intake.Budget
	files int
}

func newUploadRoom() *uploadRoom {
	return &uploadRoom{all: intake.NewBudget(uploadMemory), wait: uploadWait, own: map[uploader]*ownUploads{}}
}

// enter gives a principal's part, for one file, and a function that gives it back.
func (u *uploadRoom) enter(who uploader) (part *intake.Budget, leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	own := u.own[who]
	if own == nil {
		own = &ownUploads{Budget: intake.NewBudget(uploadOwn)}
		u.own[who] = own
	}
	own.files++
	return own.Budget, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if own.files--; own.files == 0 {
			delete(u.own, who)
		}
	}
}
