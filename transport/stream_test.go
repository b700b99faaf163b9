package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/internal/testwait"
)

// TestNewConn checks that a connection over any reader and writer ends when the agent
// does, or when its time is over.
func TestNewConn(t *testing.T) {
	for name, tt := range map[string]struct {
		ends bool
		want Exit
		took time.Duration
	}{
		"ends":  {true, Exit{}, 0},
		"hangs": {false, Exit{Code: -1, Step: StepKill}, defaultGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, toAgent := io.Pipe()
				fromAgent, out := io.Pipe()
				conn := NewConn(fromAgent, toAgent)
				release := make(chan struct{})
				go func() {
					line, _ := bufio.NewReader(in).ReadString('\n')
					io.WriteString(out, "got "+line)
					io.Copy(io.Discard, in)
					if !tt.ends {
						<-release
					}
					out.Close()
				}()
				if _, err := io.WriteString(conn, "hello\n"); err != nil {
					t.Fatal(err)
				}
				if line, err := bufio.NewReader(conn).ReadString('\n'); line != "got hello\n" || err != nil {
					t.Errorf("got %q, %v", line, err)
				}
				start := time.Now()
				if err := conn.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if took := time.Since(start); took > tt.took+readerPause {
					t.Errorf("Close took %v, want %v", took, tt.took)
				}
				close(release)
				if exit, err := conn.Wait(t.Context()); exit != tt.want || err != nil {
					t.Errorf("Wait: %+v, %v; want %+v", exit, err, tt.want)
				}
			})
		})
	}
}

// A lockedWriter is like a TLS connection: CloseWrite waits for a Write, which blocks.
type lockedWriter struct {
	mu      sync.Mutex
	blocked chan struct{} // closed when Write blocks
	ended   chan struct{} // closed when the connection is
	once    sync.Once
}

func (w *lockedWriter) Read([]byte) (int, error) {
	<-w.ended
	return 0, net.ErrClosed
}

func (w *lockedWriter) Write([]byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.blocked)
	<-w.ended
	return 0, net.ErrClosed
}

func (w *lockedWriter) CloseWrite() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nil
}

func (w *lockedWriter) Close() error {
	w.once.Do(func() { close(w.ended) })
	return nil
}

// TestCloseBesideBlockedWrite checks that Close ends a Write to a peer that does not read,
// within its time, although ending the input waits for that Write.
func TestCloseBesideBlockedWrite(t *testing.T) {
	for name, separate := range map[string]bool{"one connection": false, "a separate reader": true} {
		t.Run(name, func(t *testing.T) {
			w := &lockedWriter{blocked: make(chan struct{}), ended: make(chan struct{})}
			var r io.Reader = w
			if separate {
				r, _ = io.Pipe()
			}
			conn := NewConn(r, w)
			written := make(chan error)
			go func() {
				_, err := conn.Write([]byte("x"))
				written <- err
			}()
			<-w.blocked
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			closed := make(chan struct{})
			go func() {
				conn.Close(ctx)
				close(closed)
			}()
			select {
			case <-closed:
			case <-testwait.Late(t):
				t.Error("Close did not return")
				w.Close()
			}
			if err := <-written; err == nil {
				t.Error("the Write succeeded")
			}
		})
	}
}

// TestAttach checks that the connection is used once, and that options that cannot
// reach a running agent are rejected.
func TestAttach(t *testing.T) {
	conn, far := Pipe()
	defer far.Exit(0, "")
	d := Attach(conn)
	for option, spec := range map[string]Spec{
		"Path": {Path: "x"}, "Cwd": {Dir: "x"}, "CleanEnv": {Clean: true}, "Env": {Added: []string{"A=b"}}, "Dialer": {Flags: []Flag{{Name: "model", Values: []string{"x"}}}},
	} {
		var bad *SpecError
		if _, err := d.Dial(t.Context(), spec); !errors.As(err, &bad) || bad.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
	if got, err := d.Dial(t.Context(), Spec{Words: streaming, Env: []string{"A=b"}}); got != conn || err != nil {
		t.Errorf("Dial: %v, %v", got, err)
	}
	if _, err := d.Dial(context.Background(), Spec{}); err == nil {
		t.Error("a second Dial succeeds")
	}
}
