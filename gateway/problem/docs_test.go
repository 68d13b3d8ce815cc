package problem

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/problems.md")

// The page of codes says what the table says.
func TestThePageOfCodesIsCurrent(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("# Error codes\n\nEvery error is `application/problem+json` (RFC 9457) with a `code` that never changes its meaning, and the same\n" +
		"code and text in the member `error`. `retryable` says whether the same request can succeed later. Only what is no\n" +
		"request yet is answered in plain text: headers that are too large (431), or that are none (400).\n\n" +
		"| code | status | meaning | retry |\n|---|---|---|---|\n")
	for _, c := range Codes() {
		info, retry := c.Info(), ""
		if info.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", c, info.Status, info.Title, retry)
	}
	const path = "../../docs/problems.md"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s is not what the table says; run: go test ./gateway/problem -run Page -update", path)
	}
}
