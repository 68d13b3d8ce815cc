package control

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/intake"
)

// zeros is a file of nothing, which the client need not hold.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Ten large files at once take the memory that files may take, and little
// beside it: the others wait, and none is copied whole on its way to the database. It runs beside no
// other test, since it looks at what the process takes.
func TestUploadsAreNotCopiedOnTheirWay(t *testing.T) { //nolint:paralleltest // see above
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const size, files = 24 << 20, 10
	send := func(id string) (int, error) {
		head := "--b\r\nContent-Disposition: form-data; name=\"subject\"\r\n\r\n" + subject + "\r\n--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n" + id +
			"\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
		const tail = "\r\n--b--\r\n"
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/_electric/entities/chat/1/attachments",
			io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, size), strings.NewReader(tail)))
		if err != nil {
			return 0, err
		}
		req.ContentLength = int64(len(head) + size + len(tail))
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		req.Header.Set("Electric-Principal", kyle)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return res.StatusCode, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() {
			if status, err := send(fmt.Sprint("f", i)); err != nil || status != 201 {
				t.Errorf("file %d: %d, %v", i, status, err)
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	// The memory of uploads, twice for what the collector leaves until it runs, and what is else done.
	took := (after.HeapSys - before.HeapSys) >> 20
	t.Logf("the process took %d MiB from the system", took)
	if most := uint64(2*(uploadMemory>>20) + 96); took > most {
		t.Errorf("the process took %d MiB from the system, more than %d", took, most)
	}
	if n := r.count(`select count(*) from rouse.streams s where kind = 'attachment' and tail = $1
		and (select sum(octet_length(payload)) from rouse.messages m where m.stream_id = s.id) = tail
		and (select count(*) from rouse.messages m where m.stream_id = s.id) = 24`, size); n != files {
		t.Errorf("%d files are whole", n)
	}
}

// A file that gets no memory in time is refused in a way that says when to come again.
func TestAnUploadThatWaitsTooLongIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	r.c.uploads, r.c.uploadWait = intake.NewBudget(256<<10), 50*time.Millisecond
	const at = "/_electric/entities/chat/1/attachments"
	body, ct := upload(t, "f", "", make([]byte, 300<<10), "subject", subject)
	if a := r.refused(503, "OVERLOADED", kyle, "POST", at, body, "Content-Type", ct); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	body, ct = upload(t, "f", "", []byte("x"), "subject", subject)
	r.must(201, kyle, "POST", at, body, "Content-Type", ct)
	if held := r.c.uploads.Held(); held != 0 {
		t.Errorf("%d bytes stay", held)
	}
}
