package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described is a Control that only describes itself.
func described(t *testing.T) *Control {
	t.Helper()
	c := New(t.Context(), Config{})
	t.Cleanup(func() { _ = c.Stop(t.Context()) })
	return c
}

func TestDescriptionIsWhatIsCheckedIn(t *testing.T) {
	t.Parallel()
	v31, v30, err := described(t).DescriptionYAML()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("..", "..", "openapi")
	for file, want := range map[string][]byte{"openapi.yaml": v31, "openapi-3.0.yaml": v30} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || string(got) != string(want) {
			t.Errorf("openapi/%s is not what the routes say (%v): run make generate", file, err)
		}
	}
	// The clients remember which description they were generated from.
	for file, text := range map[string][]byte{"client/spec.sha256": v30, "ts/spec.sha256": v31} {
		sum := sha256.Sum256(text)
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(got)) != hex.EncodeToString(sum[:]) {
			t.Errorf("openapi/%s: the client was generated from another description (%v): run make generate", file, err)
		}
	}
}

func TestDescriptionNamesEveryRouteAndNoSchemaLinks(t *testing.T) {
	t.Parallel()
	c := described(t)
	v31, v30, err := c.Description()
	if err != nil {
		t.Fatal(err)
	}
	for version, text := range map[string][]byte{"3.1": v31, "3.0": v30} {
		var doc struct {
			OpenAPI string
			Paths   map[string]map[string]struct{ OperationID string }
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(doc.OpenAPI, version) || strings.Contains(string(text), "$schema\"") {
			t.Errorf("version %s or $schema members: %s", doc.OpenAPI, version)
		}
		ids := map[string]bool{}
		for path, methods := range doc.Paths {
			for m, op := range methods {
				if op.OperationID == "" || ids[op.OperationID] {
					t.Errorf("%s %s has the operation id %q", m, path, op.OperationID)
				}
				ids[op.OperationID] = true
			}
		}
		for path, methods := range c.adapter.routes {
			for m := range methods {
				if _, ok := doc.Paths[path][strings.ToLower(m)]; !ok {
					t.Errorf("%s %s is served and not described", m, path)
				}
			}
		}
		for _, id := range []string{"createStream", "appendToStream", "readStream", "headStream", "deleteStream"} {
			if !ids[id] {
				t.Errorf("%s is not described", id)
			}
		}
	}
}
