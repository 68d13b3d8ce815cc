package pluginhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-run/rouse/gateway/config"
)

// Spec is what the configuration says of one plugin.
type Spec struct {
	// Path of the program, absolute, and SHA256 of its bytes, in hex.
	Path   string `yaml:"path" json:"path,omitempty"`
	SHA256 string `yaml:"sha256" json:"sha256,omitempty"`
	// Builtin names a plugin that this binary has, in place of a path.
	Builtin string `yaml:"builtin" json:"builtin,omitempty"`
	// InProcess runs a built-in one in the gateway's own process.
	InProcess bool `yaml:"in_process" json:"in_process,omitempty"`
	// Args of the program.
	Args []string `yaml:"args" json:"args,omitempty"`
	// Env is the environment: the gateway's own is not handed on. PassEnv names
	// variables of the gateway's that are.
	Env     map[string]string `yaml:"env" json:"env,omitempty"`
	PassEnv []string          `yaml:"pass_env" json:"pass_env,omitempty"`
	// Timeout bounds a call; zero means 30 s for a delivery, 5 s for a hook.
	Timeout time.Duration `yaml:"timeout" json:"timeout,omitempty"`
	// Memory is how much the process may have resident; zero means 512 MiB.
	Memory config.Bytes `yaml:"memory" json:"memory,omitempty"`
	// Files is how many files the process may have open; zero means 4096.
	Files uint64 `yaml:"files" json:"files,omitempty"`
	// Headers are the fields of a request that an auth hook is shown and by which
	// its answers are remembered; nil means Authorization, an empty list none. They
	// are read at the gateway's start.
	Headers []string `yaml:"headers" json:"headers,omitempty"`
	// Reads are the files and folders that it reads when it starts: one that does
	// not run is started again when they change.
	Reads []string `yaml:"-" json:"-"`
	// Config is handed to the plugin as JSON.
	Config map[string]any `yaml:"config" json:"config,omitempty"`
}

// Defaults of a Spec.
const (
	deliverTimeout = 30 * time.Second
	hookTimeout    = 5 * time.Second
	defaultMemory  = 512 * config.MiB
	defaultFiles   = 4096
)

// Set is the whole of a plugins file: plugins by name. A transport's name is
// the "type" of the dispatch targets it serves.
type Set struct {
	Transports map[string]Spec `yaml:"transports"`
	AuthHooks  map[string]Spec `yaml:"authhooks"`
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// maxFile bounds a plugins file in bytes.
const maxFile = 1 << 20

// Load reads a plugins file. It holds secrets as often as not, so no complaint
// quotes a value.
func Load(path string) (Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return Set{}, wrap(CodeConfiguration, bare(err), "the plugins file "+path+" cannot be opened")
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(raw) > maxFile {
		return Set{}, errorf(CodeConfiguration, "the plugins file %s cannot be read", path)
	}
	s, err := Parse(raw)
	if err != nil {
		return Set{}, wrap(CodeConfiguration, err, "the plugins file "+path)
	}
	return s, nil
}

// Parse reads YAML, of which JSON is a part.
func Parse(raw []byte) (Set, error) {
	var s Set
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return Set{}, errors.New(unquoted(err))
	}
	return s, s.validate()
}

// unknownName is how the parser says that a name is none of an entry's, by a Go type.
var unknownName = regexp.MustCompile(`field (\S+) not found in type \S+`)

// unquoted says where a file is wrong and not what stands there.
func unquoted(err error) string {
	t, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		place, _, found := strings.Cut(config.NoYAML(err).Error(), ":")
		if !found {
			return place
		}
		return place + ": it is no YAML"
	}
	lines := make([]string, len(t.Errors))
	for i, l := range t.Errors {
		if first, last := strings.Index(l, "`"), strings.LastIndex(l, "`"); first >= 0 {
			l = l[:first] + "…" + l[last+1:] // what is quoted may have quotes of its own
		}
		lines[i] = config.InWords(unknownName.ReplaceAllString(l, "there is no member $1 here"))
	}
	return strings.Join(lines, "; ")
}

func (s Set) validate() error {
	var wrong []error
	for kind, specs := range map[string]map[string]Spec{"transports": s.Transports, "authhooks": s.AuthHooks} {
		for _, name := range slices.Sorted(maps.Keys(specs)) {
			bad := func(why string, args ...any) {
				wrong = append(wrong, fmt.Errorf("%s.%s %s", kind, name, fmt.Sprintf(why, args...)))
			}
			p := specs[name]
			switch {
			case !nameForm.MatchString(name) || name == "runner":
				bad("has a name that is none: lower-case letters, digits and dashes, and not runner")
			case (p.Path == "") == (p.Builtin == ""):
				bad("needs a path, or names a builtin one, and not both")
			case p.Path != "" && !filepath.IsAbs(p.Path):
				bad("needs an absolute path")
			case p.Path != "" && len(p.SHA256) != 64:
				bad("needs the sha256 of its program, 64 hex digits; `rouse plugin check` tells it")
			case p.Path != "" && p.InProcess:
				bad("cannot run in the gateway's process: only a builtin one can")
			case p.Timeout < 0 || p.Timeout > 10*time.Minute:
				bad("has a timeout that is not between 0 and 10m")
			case p.Memory != 0 && p.Memory < 16*config.MiB:
				bad("needs at least 16MiB of memory")
			case kind == "authhooks" && p.InProcess:
				bad("runs in the gateway's process where it is configured under auth.hooks, with in_process: true, not here")
			case kind == "transports" && len(p.Headers) > 0:
				bad("is shown no headers: only auth hooks are")
			}
			if _, twice := s.Transports[name]; twice && kind == "authhooks" {
				bad("has the name of a transport")
			}
			if _, err := p.settings(); err != nil {
				bad("has a config that is no JSON object")
			}
		}
	}
	return errors.Join(wrong...)
}

// settings is Config as JSON.
func (p Spec) settings() (json.RawMessage, error) {
	if p.Config == nil {
		return json.RawMessage(`{}`), nil
	}
	return json.Marshal(p.Config)
}

// equal says whether two specs are the same to a plugin.
func (p Spec) equal(q Spec) bool {
	a, errA := json.Marshal(p)
	b, errB := json.Marshal(q)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func (p Spec) shown() []string {
	if p.Headers == nil {
		return []string{"Authorization"}
	}
	return p.Headers
}

// hides gives those of some header fields that an auth hook is not shown.
func (p Spec) hides(headers []string) (hidden []string) {
	for _, h := range headers {
		if !slices.ContainsFunc(p.shown(), func(s string) bool { return strings.EqualFold(s, h) }) {
			hidden = append(hidden, clip(h))
		}
	}
	return hidden
}

func (p Spec) memory() int64 {
	if p.Memory == 0 {
		return int64(defaultMemory)
	}
	return int64(p.Memory)
}

// environment of the process. What a program needs to find others, the time and
// the certificates of the machine is handed on; nothing else is.
func (p Spec) environment(host func(string) (string, bool)) []string {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}
	for _, name := range append([]string{"PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"}, p.PassEnv...) {
		if v, ok := host(name); ok {
			env[name] = v
		}
	}
	env["GOMEMLIMIT"] = fmt.Sprint(p.memory() * 9 / 10)
	maps.Copy(env, p.Env)
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}
