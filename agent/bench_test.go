package agent_test

import (
	"runtime"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

func benchOptions(dir string) *parley.Options {
	return &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{
		Model: parleytest.Script(parleytest.Say("hello").Always()).Model(), Store: &session.Memory{},
	})}
}

// BenchmarkConversation measures whole conversations of one turn, from connecting to closing.
func BenchmarkConversation(b *testing.B) {
	opts := benchOptions(b.TempDir())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parley.Run(b.Context(), "hi", opts); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstTurn measures the first turn of connected conversations.
func BenchmarkFirstTurn(b *testing.B) {
	opts := benchOptions(b.TempDir())
	b.ReportAllocs()
	clients := make([]*parley.Client, b.N)
	for i := range clients {
		clients[i] = connect(b, opts)
	}
	b.ResetTimer()
	for _, c := range clients {
		for _, err := range c.Turn(b.Context(), "hi") {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	for _, c := range clients {
		c.Close()
	}
}

func connect(tb testing.TB, opts *parley.Options) *parley.Client {
	c, err := parley.Connect(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// BenchmarkIdle measures the memory of a conversation that has answered once and waits.
func BenchmarkIdle(b *testing.B) {
	heap, stack, goroutines := idle(b, b.N)
	b.ReportMetric(heap, "heap-B")
	b.ReportMetric(stack, "stack-B")
	b.ReportMetric(goroutines, "goroutines")
}

// idle returns what each of n conversations that have answered once needs, with its host: bytes of
// the heap and of stacks, and goroutines.
func idle(tb testing.TB, n int) (heap, stack, goroutines float64) {
	opts := benchOptions(tb.TempDir())
	read := func() (h, s, g float64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())
	}
	if _, err := parley.Run(tb.Context(), "hi", opts); err != nil { // creates what conversations share
		tb.Fatal(err)
	}
	h0, s0, g0 := read()
	clients := make([]*parley.Client, n)
	for i := range clients {
		clients[i] = connect(tb, opts)
		for _, err := range clients[i].Turn(tb.Context(), "hi") {
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
	h1, s1, g1 := read()
	for _, c := range clients {
		c.Close()
	}
	return (h1 - h0) / float64(n), (s1 - s0) / float64(n), (g1 - g0) / float64(n)
}

// TestIdleConversation checks how much memory and how many goroutines a waiting conversation needs.
func TestIdleConversation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory")
	}
	heap, stack, goroutines := idle(t, 200)
	if goroutines > 3.1 {
		t.Errorf("an idle conversation has %.2f goroutines, want the readers of both ends and the owner of the conversation", goroutines)
	}
	if heap > 48_000 || heap+stack > 75_000 {
		t.Errorf("an idle conversation needs %.0f bytes of the heap and %.0f of stacks", heap, stack)
	}
}
