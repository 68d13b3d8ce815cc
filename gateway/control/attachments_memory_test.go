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
	"github.com/rouse-run/rouse/gateway/soon"
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
	r.c.uploads.all, r.c.uploads.wait = intake.NewBudget(256<<10), 50*time.Millisecond
	const at = "/_electric/entities/chat/1/attachments"
	body, ct := upload(t, "f", "", make([]byte, 300<<10), "subject", subject)
	if a := r.refused(503, "OVERLOADED", kyle, "POST", at, body, "Content-Type", ct); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	body, ct = upload(t, "f", "", []byte("x"), "subject", subject)
	r.must(201, kyle, "POST", at, body, "Content-Type", ct)
	if held := r.c.uploads.all.Held(); held != 0 {
		t.Errorf("%d bytes stay", held)
	}
}

// Nobody alone keeps others from sending files, however slowly theirs come.
func TestNobodyAloneFillsTheRoomForUploads(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	url := map[string]string{}
	for who, typ := range map[string]string{kyle: "chat", mallory: "spam"} {
		r.must(201, who, "POST", "/_electric/entity-types", `{"name":"`+typ+`","description":""}`)
		r.must(201, who, "PUT", "/_electric/entities/"+typ+"/1", "")
		url[who] = "/_electric/entities/" + typ + "/1/attachments"
	}
	r.c.uploads.wait = time.Minute
	begin := make([]byte, uploadWhole+1)
	for range 3 {
		from, to := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+url[mallory], from)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 24 << 20
		req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		req.Header.Set("Electric-Principal", mallory)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
		}()
		if _, err := to.Write(begin); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { to.CloseWithError(io.ErrUnexpectedEOF); <-done })
	}
	soon.Until(t, "one of mallory's is given its memory, two wait", func() bool { return r.c.uploads.all.Held() == 24<<20+2*uploadWhole })
	body, ct := upload(t, "f", "", make([]byte, 24<<20), "subject", subject)
	r.must(201, kyle, "POST", url[kyle], body, "Content-Type", ct)
	body, ct = upload(t, "f", "", []byte("x"), "subject", subject)
	r.must(201, mallory, "POST", url[mallory], body, "Content-Type", ct)
}
