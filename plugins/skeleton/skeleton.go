// Package skeleton writes the beginning of a plugin: a Go module that builds,
// has a test and passes the conformance kit before a line of it is changed.
//
// It promises to write into a new or empty folder only. It knows nothing of
// the gateway.
package skeleton

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed transport/* authhook/*
var files embed.FS

// Plugin says what to write.
type Plugin struct {
	// Kind is transport or authhook.
	Kind string
	// Name is the plugin's, and its module's and program's.
	Name string
	// Version of this module that it is built with, as in v1.2.3.
	Version string
	// Rouse is a folder with this module's source to build with instead, absolute;
	// empty = none.
	Rouse string
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// Write writes the plugin to dir and gives the names of its files.
func Write(dir string, p Plugin) ([]string, error) {
	if !nameForm.MatchString(p.Name) || p.Name == "runner" {
		return nil, errors.New("a plugin's name is of lower-case letters, digits and dashes, and begins with a letter")
	}
	if p.Kind != "transport" && p.Kind != "authhook" {
		return nil, errors.New("a plugin is a transport or an authhook")
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	entries, err := files.ReadDir(p.Kind)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		raw, err := files.ReadFile(p.Kind + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		t, err := template.New(e.Name()).Delims("[[", "]]").Parse(string(raw))
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		if err := t.Execute(&text, p); err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(e.Name(), ".tmpl")
		if err := os.WriteFile(filepath.Join(dir, name), text.Bytes(), 0o644); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
