package streams_test

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
)

// What an idle reader costs. Not parallel: it measures the whole process.
func TestAnIdleReaderIsSmall(t *testing.T) {
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	const n = 1000
	var before, during runtime.MemStats
	open := func() net.Conn {
		c, err := net.Dial("tcp", rig.Addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "GET /a?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n")
		r := bufio.NewReaderSize(c, 16)
		for !strings.Contains(line(t, r), "upToDate") {
		}
		return c
	}
	defer open().Close()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		defer open().Close()
	}
	soon.Until(t, "all wait", func() bool { return rig.Hub.Watchers() == n+1 })
	runtime.GC()
	runtime.ReadMemStats(&during)
	each := (int64(during.HeapInuse+during.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / n
	t.Logf("an idle SSE reader costs %d bytes, its client in the same process included", each)
	if each > overhead*40<<10 {
		t.Fatalf("an idle SSE reader costs %d bytes", each)
	}
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return s
}
