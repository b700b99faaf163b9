package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/parley-go/parley/fleet"
)

// A screen is a writer that calls a function with the written data.
type screen func(text string) error

func (s screen) Write(p []byte) (int, error) { return len(p), s(string(p)) }

// The command top shows the workers and the queue, and ends when it is interrupted or its output is closed.
func TestTop(t *testing.T) {
	s, err := fleet.StartServer(fleet.ServerConfig{Name: "top", Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := fleet.Connect(s)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := fleet.Open(t.Context(), fleet.Config{Conn: nc, Worker: "wanda"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Announce(t.Context(), "1.2.3", 7); err != nil {
		t.Fatal(err)
	}
	args := []string{"top", "--nats", s.ClientURL()}

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out strings.Builder
	var errs bytes.Buffer
	code := run(ctx, args, screen(func(text string) error {
		if out.WriteString(text); strings.Contains(out.String(), "1.2.3") {
			interrupt()
		}
		return nil
	}), &errs)
	got := strings.Join(strings.Fields(out.String()), " ")
	if want := "\x1b[H\x1b[2J0 sessions: 0 running (0 of them wait for a person), 0 queued WORKER SESSIONS SLOTS VERSION UP wanda 0 7 1.2.3 "; code != 0 || !strings.HasPrefix(got, want) {
		t.Errorf("interrupted: %d, %q\n%q, want %q", code, &errs, got, want)
	}

	errs.Reset()
	if code := run(ctx, args, &out, &errs); code != 0 || errs.Len() > 0 { // during a request
		t.Errorf("interrupted before it shows anything: %d, %q", code, &errs)
	}

	closed := errors.New("the output is closed")
	if code := run(t.Context(), args, screen(func(string) error { return closed }), &errs); code != 1 || !strings.Contains(errs.String(), closed.Error()) {
		t.Errorf("closed: %d, %q", code, &errs)
	}
}
