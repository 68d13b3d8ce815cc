package streams_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
)

func TestATrimmedStreamSaysWhereItBegins(t *testing.T) {
	t.Parallel()
	// Pages of a few messages: reads share them, and their start moves, too.
	for name, pages := range map[string]int32{"one page": 1 << 20, "many pages": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, _ := start(t, func(c *streams.Config) { c.PageBytes = pages })
			do(t, "PUT", rig.URL+"/a", "", ct, jsonT).want(t, 201, "")
			var offsets []string
			for i := range 20 {
				a := do(t, "POST", rig.URL+"/a", `[{"n":`+strings.Repeat("1", i%3+1)+`},{"more":true}]`, ct, jsonT).want(t, 204, "")
				offsets = append(offsets, a.header.Get("Stream-Next-Offset"))
			}
			whole := func(from string) (body string, first answer) {
				t.Helper()
				for at := from; ; {
					a := do(t, "GET", rig.URL+"/a?offset="+at, "").want(t, 200, "")
					if first.status == 0 {
						first = a
					}
					body += strings.Trim(a.body, "[]") + "\n"
					if at = a.header.Get("Stream-Next-Offset"); a.header.Get("Stream-Up-To-Date") == "true" {
						return body, first
					}
				}
			}
			whole("-1") // whatever a reader leaves behind in memory
			if a := do(t, "HEAD", rig.URL+"/a", "").want(t, 200, ""); a.header.Get("Stream-Earliest-Offset") != "" {
				t.Fatal(a.header)
			}
			cut, err := store.ParseOffset(offsets[8])
			if err != nil {
				t.Fatal(err)
			}
			if tr, err := rig.Store.StreamTrim(t.Context(), 1, "a", &cut, false, ""); err != nil || tr.Head != cut {
				t.Fatalf("%+v %v", tr, err)
			}
			for _, query := range []string{"?offset=0000000000000000_0000000000000000", "?offset=" + offsets[3], "?live=long-poll&offset=" + offsets[7], "?live=sse&offset=" + offsets[2]} {
				a := do(t, "GET", rig.URL+"/a"+query, "").want(t, 410, problem.OffsetGone)
				var p struct {
					Retryable bool
					Error     struct {
						EarliestOffset string `json:"earliest_offset"`
					}
				}
				if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Error.EarliestOffset != offsets[8] || a.header.Get("Stream-Earliest-Offset") != offsets[8] || p.Retryable {
					t.Fatalf("%s: %v %s", query, a.header, a.body)
				}
				if a.header.Get("Cache-Control") != "no-store" {
					t.Fatalf("a refusal may be cached: %v", a.header)
				}
			}
			if a := do(t, "HEAD", rig.URL+"/a", "").want(t, 200, ""); a.header.Get("Stream-Earliest-Offset") != offsets[8] || a.header.Get("Stream-Next-Offset") != offsets[19] {
				t.Fatal(a.header)
			}
			rest, first := whole(offsets[8])
			if strings.Count(rest, "more") != 11 || first.header.Get("Stream-Earliest-Offset") != "" {
				t.Fatalf("%v %s", first.header, rest)
			}
			for _, from := range []string{"-1", ""} {
				url := rig.URL + "/a"
				if from != "" {
					url += "?offset=" + from
				}
				a := do(t, "GET", url, "").want(t, 200, "")
				if a.body != first.body || a.header.Get("Stream-Earliest-Offset") != offsets[8] || a.header.Get("Cache-Control") != "no-cache" {
					t.Fatalf("%v %s, want %s", a.header, a.body, first.body)
				}
				do(t, "GET", url, "", "If-None-Match", a.header.Get("Etag")).want(t, 304, "")
			}
			if all, _ := whole("-1"); strings.ReplaceAll(all, "\n", ",") != strings.ReplaceAll(rest, "\n", ",") {
				t.Fatalf("from the start %s, want %s", all, rest)
			}
			// Live reads begin there as well.
			sse := follow(t, rig.URL+"/a?offset=-1&live=sse")
			if e := sse.want("data"); !strings.HasPrefix(e.data, strings.TrimSuffix(first.body, "]")) {
				t.Fatalf("%s", e.data)
			}
			if a := do(t, "GET", rig.URL+"/a?offset=-1&live=long-poll", "").want(t, 200, ""); a.body != first.body || a.header.Get("Cache-Control") != "no-cache" || a.header.Get("Stream-Earliest-Offset") != offsets[8] {
				t.Fatal(a.header, a.body)
			}
			// Forks of it begin where it does.
			do(t, "PUT", rig.URL+"/f", "", "Stream-Forked-From", "/a", "Stream-Fork-Offset", offsets[10]).want(t, 201, "")
			if a := do(t, "GET", rig.URL+"/f?offset=-1", "").want(t, 200, ""); strings.Count(a.body, "more") < 1 || strings.Count(a.body, "more") > 2 {
				t.Fatal(a.body)
			}
			do(t, "PUT", rig.URL+"/g", "", "Stream-Forked-From", "/a", "Stream-Fork-Offset", offsets[3]).want(t, 400, problem.OffsetInvalid)
		})
	}
}

// A reader that waits at a place which is trimmed away behind what came after it
// learns so, and does not wait on.
func TestALiveReaderThatIsLeftBehindIsTold(t *testing.T) {
	t.Parallel()
	rig, db := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	do(t, "POST", rig.URL+"/a", "one", ct, text).want(t, 204, "")
	sse := follow(t, rig.URL+"/a?offset=now&live=sse")
	sse.want("control")
	// Appended and trimmed in one transaction: no reader can be in time.
	tx, err := db.Pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for _, sql := range []string{
		`update rouse.streams set tail = tail + 3 where path = 'a'`,
		`insert into rouse.messages (stream_id, position, payload) select id, tail, 'two' from rouse.streams where path = 'a'`,
		`select outcome from rouse.stream_trim(1, 'a', null, false, '')`,
		`select rouse._notice(id, tail, 0) from rouse.streams where path = 'a'`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := sse.want("error"); !strings.Contains(e.data, string(problem.OffsetGone)) || !strings.Contains(e.data, `"earliest_offset":"`+store.FormatOffset(6)) {
		t.Fatal(e.data)
	}
}

func TestLimitsComeWithTheStream(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text, "Stream-Retention", "age=7d; bytes=1000; count=5").want(t, 201, "")
	got, err := rig.Store.RetentionGet(t.Context(), 1, "a")
	if err != nil || got.Source != "stream" || got.Age.Hours() != 168 || got.Bytes != 1000 || got.Messages != 5 {
		t.Fatalf("%+v %v", got, err)
	}
	do(t, "PUT", rig.URL+"/a", "", ct, text, "Stream-Retention", "count=5;bytes=1000;age=604800").want(t, 200, "")
	do(t, "PUT", rig.URL+"/a", "", ct, text, "Stream-Retention", "count=6").want(t, 409, problem.StreamExists)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 200, "")
	// Who may make streams may not limit what is there already, which would take messages from it.
	do(t, "PUT", rig.URL+"/old", "", ct, text).want(t, 201, "")
	do(t, "PUT", rig.URL+"/old", "", ct, text, "Stream-Retention", "count=1").want(t, 409, problem.StreamExists)
	if got, err := rig.Store.RetentionGet(t.Context(), 1, "old"); err != nil || got.Source != "none" {
		t.Fatalf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "age", "age=", "age=-1", "age=0", "age=1w", "age=99999999999d", "bytes=1e3", "count=5;count=5", "count=+5", "size=5", "age=5;", "bytes=99999999999999999999"} {
		do(t, "PUT", rig.URL+"/b", "", ct, text, "Stream-Retention", bad).want(t, 400, problem.InvalidRequest)
	}
	do(t, "GET", rig.URL+"/b", "").want(t, 404, problem.StreamNotFound)
}
