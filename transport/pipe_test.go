package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// echo is an agent that ends at EOF.
func echo(agent *Peer) {
	io.Copy(agent, agent)
	agent.Exit(0, "")
}

func TestPipeEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, agent := Pipe()
		go echo(agent)
		if _, err := io.WriteString(host, "hello"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 5)
		if _, err := io.ReadFull(host, buf); err != nil || string(buf) != "hello" {
			t.Errorf("read %q, %v", buf, err)
		}
		if err := host.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Read(buf); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		if exit, err := host.Wait(t.Context()); exit != (Exit{Step: StepEOF}) || err != nil {
			t.Errorf("exit %+v, %v", exit, err)
		}
		if err := host.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := host.Write(buf); !errors.Is(err, ErrInputClosed) {
			t.Errorf("Write: %v", err)
		}
		if agent.Context().Err() == nil {
			t.Error("the agent's context outlives it")
		}
	})
}

func TestPipeLadder(t *testing.T) {
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name  string
		agent func(*Peer)
		ctx   context.Context
		want  Exit
		took  time.Duration
		fails bool
	}{
		{"gone before", func(p *Peer) { p.Exit(3, "no") }, context.Background(), Exit{Code: 3, Stderr: "no"}, 0, false},
		{"ends at EOF", echo, context.Background(), Exit{Step: StepEOF}, 0, false},
		{"needs its context", func(p *Peer) { <-p.Context().Done(); p.Exit(1, "") }, context.Background(), Exit{Code: 1, Step: StepTerminate}, defaultGrace, false},
		{"never ends", func(p *Peer) { time.Sleep(time.Hour); p.Exit(0, "late") }, context.Background(), Exit{Code: -1, Step: StepKill}, 2 * defaultGrace, true},
		{"no time, context", func(p *Peer) { <-p.Context().Done(); p.Exit(1, "") }, expired, Exit{Code: 1, Step: StepTerminate}, 0, false},
		{"no time, never ends", func(p *Peer) { time.Sleep(time.Hour) }, expired, Exit{Code: -1, Step: StepKill}, hurriedGrace, true},
		{"blocked on its output", func(p *Peer) { p.Write(make([]byte, 1<<20)); p.Exit(0, "") }, context.Background(), Exit{Step: StepEOF}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host, agent := Pipe()
				go tt.agent(agent)
				synctest.Wait()
				start := time.Now()
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						if err := host.Close(tt.ctx); (err != nil) != tt.fails {
							t.Errorf("Close: %v", err)
						}
					})
				}
				wg.Wait()
				if d := time.Since(start); d != tt.took {
					t.Errorf("took %v, want %v", d, tt.took)
				}
				if exit, err := host.Wait(context.Background()); exit != tt.want || err != nil {
					t.Errorf("exit %+v, %v, want %+v", exit, err, tt.want)
				}
				time.Sleep(2 * time.Hour) // the stubborn ones end, too
			})
		})
	}
}

func TestPipeCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, agent := Pipe()
		if err := host.Close(t.Context()); err == nil {
			t.Error("Close reports nothing")
		}
		if _, err := agent.Write([]byte("x")); !errors.Is(err, ErrClosed) {
			t.Errorf("Write: %v", err)
		}
		if _, err := agent.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Read: %v", err)
		}
	})
}

func TestPipeHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, agent := Pipe()
		agent.CloseWrite()
		if _, err := host.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("Read: %v", err)
		}
		if _, err := io.WriteString(host, "still"); err != nil {
			t.Errorf("Write: %v", err)
		}
		agent.CloseRead()
		if _, err := io.WriteString(host, "not any more"); !errors.Is(err, ErrInputClosed) {
			t.Errorf("Write: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := host.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		agent.Exit(0, "")
		if err := host.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestPipeBound checks that each direction holds exactly PipeBuffer bytes, and that
// both ends can be unblocked.
func TestPipeBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, agent := Pipe()
		for name, w := range map[string]io.Writer{"host": host, "agent": agent} {
			if n, err := w.Write(make([]byte, PipeBuffer)); n != PipeBuffer || err != nil {
				t.Errorf("%s: wrote %d, %v", name, n, err)
			}
		}
		errs := make(chan error, 2)
		go func() { _, err := host.Write([]byte{1}); errs <- err }()
		synctest.Wait()
		select {
		case err := <-errs:
			t.Errorf("Write did not block: %v", err)
		default:
		}
		host.CloseWrite()
		if err := <-errs; !errors.Is(err, ErrInputClosed) {
			t.Errorf("host's Write: %v", err)
		}
		go func() { _, err := agent.Write([]byte{1}); errs <- err }()
		synctest.Wait()
		agent.Exit(0, "")
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Errorf("agent's Write: %v", err)
		}
		// Output from before the exit can be read.
		if all, err := io.ReadAll(host); len(all) != PipeBuffer || err != nil {
			t.Errorf("read %d bytes, %v", len(all), err)
		}
	})
}

func TestPipeOrder(t *testing.T) {
	host, agent := Pipe()
	want := []byte(strings.Repeat("0123456789abcdef", 1<<16))
	go func() {
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+len(rest)%40000)
			agent.Write(rest[:n])
			rest = rest[n:]
		}
		agent.Exit(0, "")
	}()
	var got []byte
	buf := make([]byte, 30011)
	for {
		n, err := host.Read(buf[:1+len(got)%len(buf)])
		got = append(got, buf[:n]...)
		if err != nil {
			break
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes differ from the %d written", len(got), len(want))
	}
	if err := host.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPipeCloseWhileReading checks that a reader that pauses briefly after Close began
// loses nothing, and that Close continues without it when it stops.
func TestPipeCloseWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, agent := Pipe()
		go func() {
			io.Copy(io.Discard, agent)
			agent.Write(make([]byte, 3*PipeBuffer))
			agent.Exit(0, "")
		}()
		read := make(chan int)
		go func() {
			var n int
			for buf := make([]byte, 10000); ; {
				k, err := host.Read(buf)
				if n += k; err != nil {
					read <- n
					return
				}
				time.Sleep(readerPause / 5)
			}
		}()
		synctest.Wait()
		if err := host.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := <-read; n != 3*PipeBuffer {
			t.Errorf("read %d bytes of %d", n, 3*PipeBuffer)
		}
		if exit, _ := host.Wait(t.Context()); exit != (Exit{Step: StepEOF}) {
			t.Errorf("exit %+v", exit)
		}
	})
}

func BenchmarkPipe(b *testing.B) {
	host, agent := Pipe()
	go echo(agent)
	line := bytes.Repeat([]byte("x"), 200)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		host.Write(line)
		io.ReadFull(host, line)
	}
	host.Close(context.Background())
}

// TestCloseBesideAwait checks that Close leaves the output to a consumer that waits for it,
// however late it comes.
func TestCloseBesideAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, far := Pipe()
		go func() {
			io.Copy(io.Discard, far)
			time.Sleep(time.Second)
			io.WriteString(far, "late\n")
			far.Exit(0, "")
		}()
		read := make(chan string)
		go func() {
			conn.(interface{ Await() }).Await()
			all, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			read <- string(all)
		}()
		synctest.Wait()
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := <-read; got != "late\n" {
			t.Errorf("got %q", got)
		}
	})
}
