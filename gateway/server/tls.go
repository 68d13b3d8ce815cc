package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
)

// tlsRecheck is how often the files are looked at, at most.
const tlsRecheck = time.Second

// tlsFiles are what https is served with. A change of the files counts for the connections made from then on; files
// that cannot be read, as while they are being written, leave the old ones in place.
type tlsFiles struct {
	c   config.Config
	log *slog.Logger

	mu      sync.Mutex
	checked time.Time
	stamps  []fs.FileInfo
	now     *tls.Config
}

// newTLS reads the files; nil without any.
func newTLS(c config.Config, log *slog.Logger) (*tls.Config, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	f := &tlsFiles{c: c, log: log, checked: time.Now()}
	var err error
	if f.stamps, err = f.stat(); err == nil {
		f.now, err = f.read()
	}
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: f.now.NextProtos, Certificates: f.now.Certificates,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil }}, nil
}

func (f *tlsFiles) names() []string {
	names := []string{f.c.TLSCert, f.c.TLSKey}
	if f.c.TLSClientCA != "" {
		names = append(names, f.c.TLSClientCA)
	}
	return names
}

func (f *tlsFiles) stat() ([]fs.FileInfo, error) {
	var out []fs.FileInfo
	for _, name := range f.names() {
		st, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("a file of TLS cannot be read: %w", err)
		}
		out = append(out, st)
	}
	return out, nil
}

func (f *tlsFiles) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.c.TLSCert, f.c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("the certificate and key of TLS cannot be used: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{cert}}
	if f.c.TLSClientCA == "" {
		return out, nil
	}
	pem, err := os.ReadFile(f.c.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("the authorities of client certificates cannot be read: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("the file of the authorities of client certificates holds none")
	}
	out.ClientAuth = tls.VerifyClientCertIfGiven
	if f.c.TLSClientRequired {
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

// current is what a new connection is served with.
func (f *tlsFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checked) < tlsRecheck {
		return f.now
	}
	f.checked = time.Now()
	stamps, err := f.stat()
	if err == nil && same(f.stamps, stamps) {
		return f.now
	}
	var fresh *tls.Config
	if err == nil {
		fresh, err = f.read()
	}
	if err != nil {
		f.log.Warn("the files of TLS changed and cannot be used; the old ones stay", "error", err)
		return f.now
	}
	f.now, f.stamps = fresh, stamps
	return f.now
}

func same(a, b []fs.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}
