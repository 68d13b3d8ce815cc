package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say which server to run.
type Options struct {
	// Dir belongs to this server alone; made when missing.
	Dir string
	// Binaries to use; nil = the first of Find that fits the data directory, else a download into DownloadDir.
	Binaries *Binaries
	// DownloadDir is where a downloaded Postgres is kept; empty = nothing is ever downloaded.
	DownloadDir string
	// DownloadMirror replaces the default repository of the downloads; for closed networks.
	DownloadMirror string
	// Settings are added to, and win over, those this package chooses.
	Settings map[string]string
	// Env is added to the little that the server sees of our environment.
	Env []string
	// IdleStop makes a server that several processes share and that outlives this one.
	IdleStop *IdleStop
	// Progress is told of each step that may take a moment; nil = nobody.
	Progress func(step string)
	// StartTimeout bounds one start, crash recovery included; 0 = 60 s.
	StartTimeout time.Duration
}

// Mode says how a server goes down.
type Mode int

// The modes, from kind to cruel.
const (
	// Fast ends all sessions, writes a checkpoint and stops.
	Fast Mode = iota
	// Immediate stops without a checkpoint; the next start recovers from the log.
	Immediate
	// Crash kills every process of the server with −9.
	Crash
)

// Server is a running private Postgres. Its methods may be called from several goroutines.
type Server struct {
	opts   Options
	files  layout
	acct   account
	bin    Binaries
	id     identity
	lock   *dirLock
	socket string

	mu       sync.Mutex // one life-cycle step at a time; also guards what follows
	proc     *process   // nil while down
	stopping bool
	failed   chan struct{}
}

// Start brings a server up and waits until it takes connections. Errors are *Error. Stop must be called, unless
// Options.IdleStop is set.
func Start(ctx context.Context, opts Options) (_ *Server, err error) {
	if opts.StartTimeout == 0 {
		opts.StartTimeout = time.Minute
	}
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil || opts.Dir == "" {
		return nil, &Error{Code: CodeDataDir, Detail: "no usable data directory given", Cause: err}
	}
	acct, err := chooseAccount()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, &Error{Code: CodeDataDir, Detail: "cannot make " + dir, Cause: err}
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, &Error{Code: CodeDataDir, Detail: "cannot follow " + opts.Dir, Cause: err}
	}
	s := &Server{opts: opts, files: layout{dir}, acct: acct, failed: make(chan struct{})}
	if err := acct.reachable(s.files.data()); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(s.files.lock(), dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || opts.IdleStop != nil {
			err = errors.Join(err, s.lock.release())
		}
	}()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare has the programs, the cluster and the socket's directory in place.
func (s *Server) prepare(ctx context.Context) error {
	major, err := s.files.dataMajor()
	if err != nil {
		return &Error{Code: CodeDataDir, Detail: "cannot read " + s.files.data(), Cause: err}
	}
	if s.bin, err = s.choose(ctx, major); err != nil {
		return err
	}
	if err := stopOrphan(ctx, s.files.data()); err != nil {
		return err
	}
	if major == 0 {
		s.opts.Progress("creating a Postgres " + s.bin.Version + " cluster in " + s.files.dir)
		s.id, err = s.files.initialise(ctx, s.acct, s.bin, s.opts.Settings["fsync"] != "off")
	} else if s.id, err = s.files.readIdentity(); err != nil {
		err = &Error{Code: CodeDataDir, Detail: "cannot read " + s.files.identity(), Cause: err}
	}
	if err != nil {
		return err
	}
	if idle := s.opts.IdleStop; idle != nil {
		for _, dir := range []string{idle.Clients, filepath.Dir(idle.Advert)} {
			if err := s.acct.own(dir); err != nil {
				return &Error{Code: CodeDataDir, Detail: "cannot make " + dir, Cause: err}
			}
		}
	}
	s.socket = s.files.socketDir()
	if err := s.files.openSocketDir(s.acct); err != nil {
		return &Error{Code: CodeDataDir, Detail: "cannot make the socket's directory " + s.socket, Cause: err}
	}
	return nil
}

// choose gives the programs that fit the data directory (major 0 = any).
func (s *Server) choose(ctx context.Context, major int) (Binaries, error) {
	var candidates []Binaries
	if s.opts.Binaries != nil {
		candidates = []Binaries{*s.opts.Binaries}
	} else {
		var err error
		if candidates, err = Find(ctx); err != nil {
			if s.opts.DownloadDir == "" || os.Getenv("ROUSE_PG_BIN") != "" {
				return Binaries{}, err
			}
			s.opts.Progress("no Postgres is installed here; downloading one")
			b, err := Download(ctx, s.opts.DownloadDir, s.opts.DownloadMirror)
			if err != nil {
				return Binaries{}, err
			}
			candidates = []Binaries{b}
		}
	}
	var have []string
	for _, b := range candidates {
		if major == 0 || b.Major == major {
			return b, nil
		}
		have = append(have, b.Version)
	}
	return Binaries{}, &Error{Code: CodeVersion,
		Detail: fmt.Sprintf("%s was written by Postgres %d; found here: %s", s.files.data(), major, strings.Join(have, ", ")),
		Hint:   fmt.Sprintf("Install Postgres %d again, or start with another data directory.", major)}
}

// up starts the server and waits for it. The caller holds mu.
func (s *Server) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	const tries = 4
	for try := 1; ; try++ {
		if s.id.Port == 0 || !portIsFree(s.id.Port) {
			port, err := freePort()
			if err != nil {
				return &Error{Code: CodeStart, Detail: "no free port on 127.0.0.1", Cause: err}
			}
			s.id.Port = port
		}
		err := s.files.writeIdentity(s.id)
		if err == nil {
			err = s.files.configure(s.acct, s.id, s.opts.Settings)
		}
		if err != nil {
			return &Error{Code: CodeDataDir, Detail: "cannot write the server's configuration", Cause: err}
		}
		said, err := s.launchAndWait(ctx)
		if err == nil {
			return nil
		}
		// Somebody else can take the port between our look and the server's, and the segments of a server killed
		// with −9 can be in use until its last process has noticed: both pass.
		passing := strings.Contains(said, "could not create any TCP/IP sockets") || strings.Contains(said, "is still in use")
		if !passing || try == tries {
			return &Error{Code: CodeStart, Detail: "Postgres " + s.bin.Version + " did not start", Cause: err,
				Hint: "Its log is " + s.files.log() + ". The end of it:\n" + said}
		}
		if strings.Contains(said, "could not create any TCP/IP sockets") {
			s.id.Port = 0
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return &Error{Code: CodeStart, Detail: "Postgres did not start in time", Cause: err}
		}
	}
}

// launchAndWait makes one try; said is the end of what the server logged during it.
func (s *Server) launchAndWait(ctx context.Context) (said string, err error) {
	s.opts.Progress("starting Postgres " + s.bin.Version)
	log, err := openLog(s.files.log())
	if err != nil {
		return "", err
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	proc, err := launch(ctx, s.acct, log, s.opts.Env, s.opts.IdleStop, s.bin.Path("postgres"), "-D", s.files.data())
	if err != nil {
		return "", err
	}
	for {
		pid, ready := postmasterPID(s.files.data())
		if ready && pid == proc.pid {
			break
		}
		select {
		case <-proc.gone:
			proc.release()
			return logTail(s.files.log(), from), errors.New("the server ended")
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
			_ = proc.signal(syscall.SIGQUIT)
			<-proc.gone
			proc.release()
			return logTail(s.files.log(), from), ctx.Err()
		}
	}
	if s.opts.IdleStop != nil {
		return "", proc.detach()
	}
	s.proc, s.stopping = proc, false
	select {
	case <-s.failed:
		s.failed = make(chan struct{})
	default:
	}
	failed := s.failed
	go func() {
		<-proc.gone
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.proc == proc && !s.stopping {
			s.proc = nil
			proc.release()
			close(failed)
		}
	}()
	return "", nil
}

// Stop takes the server down (Fast, and Immediate after ten seconds or when ctx ends) and gives the directory back.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	err := s.down(ctx, Fast)
	if s.socket != filepath.Join(s.files.dir, "run") {
		err = errors.Join(err, os.RemoveAll(s.socket))
	}
	err = errors.Join(err, s.lock.release())
	s.lock = nil
	return err
}

// Kill crashes the server: every process of it is killed with −9. Restart brings it back.
func (s *Server) Kill(ctx context.Context) error { return s.Down(ctx, Crash) }

// Down takes the server down in the given mode. Restart brings it back.
func (s *Server) Down(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down(ctx, mode)
}

// Restart takes the server down in the given mode, if it is up, and starts it again on the same port and socket.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return &Error{Code: CodeStart, Detail: "the server was stopped for good"}
	}
	if err := s.down(ctx, mode); err != nil {
		return err
	}
	return s.up(ctx)
}

// down ends the running server, if any, and returns when its last process is gone. The caller holds mu.
func (s *Server) down(ctx context.Context, mode Mode) error {
	p := s.proc
	if p == nil {
		return nil
	}
	s.stopping = true
	var err error
	switch mode {
	case Fast:
		err = p.signal(syscall.SIGINT)
	case Immediate:
		err = p.signal(syscall.SIGQUIT)
	case Crash:
		// The postmaster first, so that it cannot start anybody anew; it stays a zombie until the shell is released,
		// but its children are re-parented at once and so must be looked up before.
		victims := children(p.pid)
		err = p.signal(syscall.SIGKILL)
		for _, pid := range victims {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if err != nil {
		return &Error{Code: CodeStop, Detail: "cannot signal the server", Cause: err}
	}
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	hard := time.NewTimer(20 * time.Second)
	defer hard.Stop()
	done := ctx.Done()
	for {
		select {
		case <-p.gone:
			p.release()
			s.proc = nil
			return nil
		case <-done:
			done = nil
			_ = p.signal(syscall.SIGQUIT)
		case <-patience.C:
			_ = p.signal(syscall.SIGQUIT)
		case <-hard.C:
			return &Error{Code: CodeStop, Detail: fmt.Sprintf("the server with pid %d does not stop", p.pid)}
		}
	}
}

// Failed is closed when the server ends without having been asked to; a Restart after that makes a new one.
func (s *Server) Failed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// DSN is the URL of a database over the Unix socket: the fast way in for processes of this machine and user.
func (s *Server) DSN(database string) string {
	return SocketURL(s.socket, s.id.Port, s.id.Password, database)
}

// SocketURL spells a connection through a Unix socket in dir.
func SocketURL(dir string, port int, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(Role, password), Path: "/" + database,
		RawQuery: url.Values{"host": {dir}, "port": {strconv.Itoa(port)}}.Encode()}
	return u.String()
}

// TCPURL is the URL of a database over loopback TCP, with the generated password.
func (s *Server) TCPURL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(Role, s.id.Password),
		Host: "127.0.0.1:" + strconv.Itoa(s.id.Port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// PID is the postmaster's, 0 while the server is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Port is the loopback TCP port; also part of the socket's name.
func (s *Server) Port() int { return s.id.Port }

// Password is the generated one that TCP connections need.
func (s *Server) Password() string { return s.id.Password }

// SocketDir holds the Unix socket.
func (s *Server) SocketDir() string { return s.socket }

// LogPath is where the server logs to.
func (s *Server) LogPath() string { return s.files.log() }

// Binaries are the programs in use.
func (s *Server) Binaries() Binaries { return s.bin }

// logLimit is the size in bytes above which a log is put aside at the next start.
const logLimit = 16 << 20

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

func logTail(path string, from int64) string {
	raw, err := os.ReadFile(path)
	if err != nil || int64(len(raw)) < from {
		return ""
	}
	return tail(raw[from:], 2000)
}
