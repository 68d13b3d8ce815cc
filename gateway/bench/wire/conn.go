// Package wire is the least HTTP/1.1 client that a load generator can do with: one request at a time on one TCP
// connection, requests prepared as bytes, answers read without allocating. It costs a fraction of what net/http's client
// does, so that on two shared cores it is the server that is measured. Every server of a comparison gets the same client.
//
// It must not know what is measured, and it is no client for anything but servers started by this program.
package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Header is one line of a request's head.
type Header struct{ Name, Value string }

// Request renders a request once, to be sent many times. A nil body sends no Content-Length.
func Request(method, host, target string, body []byte, headers ...Header) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	for _, h := range headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.Value)
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// Response is what a call answered. NextOffset, Cursor and Body are valid until the connection's next call.
type Response struct {
	Status     int
	NextOffset []byte
	Cursor     []byte
	UpToDate   bool
	Body       []byte
	// Size is the body's length in bytes, also where it was discarded.
	Size int64

	length  int64 // -1: not said
	chunked bool
	closing bool
}

// Conn is one connection. It is not safe for concurrent use.
type Conn struct {
	addr string
	c    net.Conn
	br   *bufio.Reader
	next []byte
	cur  []byte
	body []byte
	// Discard says that bodies are counted and thrown away.
	Discard bool
}

// Dial connects to host:port. Everything on the connection fails once until has passed.
func Dial(ctx context.Context, addr string, until time.Time) (*Conn, error) {
	return dial(ctx, addr, until, 16<<10)
}

func dial(ctx context.Context, addr string, until time.Time, buffer int) (*Conn, error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(until); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Conn{addr: addr, c: c, br: bufio.NewReaderSize(c, buffer)}, nil
}

// Close ends the connection, and with it a call that waits.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends a prepared request and reads the whole answer.
func (c *Conn) Do(request []byte) (Response, error) {
	r, err := c.begin(request)
	if err != nil {
		return r, err
	}
	switch {
	case r.Status == 204 || r.Status == 304:
	case r.chunked:
		err = c.readChunked(&r)
	case r.length >= 0:
		err = c.read(&r, r.length)
	default:
		err = errors.New("an answer without a length")
	}
	if err == nil && r.closing {
		err = errors.New("the server closes the connection")
	}
	return r, err
}

// Expect is Do for calls whose only good answers are the given statuses.
func (c *Conn) Expect(request []byte, statuses ...int) (Response, error) {
	r, err := c.Do(request)
	if err != nil {
		return r, err
	}
	for _, s := range statuses {
		if r.Status == s {
			return r, nil
		}
	}
	line, _, _ := bytes.Cut(request, []byte("\r\n"))
	return r, fmt.Errorf("%s: status %d: %.300s", line, r.Status, r.Body)
}

// begin sends a request and reads the answer's head.
func (c *Conn) begin(request []byte) (Response, error) {
	r := Response{length: -1}
	if _, err := c.c.Write(request); err != nil {
		return r, err
	}
	c.body = c.body[:0]
	line, err := c.line()
	if err != nil {
		return r, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return r, fmt.Errorf("not an HTTP answer: %.80q", line)
	}
	if r.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return r, fmt.Errorf("not an HTTP answer: %.80q", line)
	}
	for {
		if line, err = c.line(); err != nil {
			return r, err
		}
		if len(line) == 0 {
			return r, nil
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return r, fmt.Errorf("not a header: %.80q", line)
		}
		value = bytes.TrimSpace(value)
		switch len(name) {
		case len("Content-Length"):
			if equal(name, "Content-Length") {
				if r.length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
					return r, err
				}
			}
		case len("Transfer-Encoding"):
			if equal(name, "Transfer-Encoding") {
				r.chunked = equal(value, "chunked")
			} else if equal(name, "Stream-Up-To-Date") {
				r.UpToDate = true
			}
		case len("Stream-Next-Offset"):
			if equal(name, "Stream-Next-Offset") {
				c.next = append(c.next[:0], value...)
				r.NextOffset = c.next
			}
		case len("Stream-Cursor"):
			if equal(name, "Stream-Cursor") {
				c.cur = append(c.cur[:0], value...)
				r.Cursor = c.cur
			}
		case len("Connection"):
			if equal(name, "Connection") {
				r.closing = equal(value, "close")
			}
		}
	}
}

func equal(b []byte, s string) bool { return bytes.EqualFold(b, []byte(s)) }

// line reads a line of a head; it fits the buffer.
func (c *Conn) line() ([]byte, error) {
	b, err := c.br.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(b, "\r\n"), nil
}

func (c *Conn) read(r *Response, n int64) error {
	r.Size += n
	if c.Discard {
		_, err := c.br.Discard(int(n))
		return err
	}
	at := len(c.body)
	c.body = append(c.body, make([]byte, n)...)
	_, err := io.ReadFull(c.br, c.body[at:])
	r.Body = c.body
	return err
}

func (c *Conn) readChunked(r *Response) error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 32)
		if err != nil {
			return fmt.Errorf("not a chunk: %.40q", line)
		}
		if n > 0 {
			if err := c.read(r, n); err != nil {
				return err
			}
		}
		if line, err = c.line(); err != nil {
			return err
		} else if len(line) > 0 {
			return errors.New("a chunk does not end where it should")
		}
		if n == 0 {
			return nil
		}
	}
}
