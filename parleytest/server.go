package parleytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// A server serves a handler until it is closed. The zero value is not serving.
type server struct {
	http   *http.Server
	cancel context.CancelFunc // ends the context of every request
	served chan struct{}      // closed when the goroutine of listen has ended
}

// listen serves the handler at an address and returns its URL.
func (s *server) listen(addr string, h http.Handler) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("parleytest: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http = &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		s.http.Serve(ln)
	}()
	return "http://" + ln.Addr().String(), nil
}

// close ends all requests and waits for their handlers, for at most one second.
func (s *server) close() error {
	if s.http == nil {
		return nil
	}
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.served
	return err
}

// hangUp breaks the connection, with a reset if requested, and ends the handler.
func hangUp(w http.ResponseWriter, reset bool) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}
