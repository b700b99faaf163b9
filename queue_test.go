package parley

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// numbered returns the line of a message with a number and some weight.
func numbered(i, size int) []byte {
	return fmt.Appendf(nil, `{"type":"assistant","uuid":"%d","message":{"role":"assistant","content":"%s"}}`, i, strings.Repeat("x", size))
}

// numberOf returns the number of a message.
func numberOf(t *testing.T, m wire.Message) string {
	t.Helper()
	switch m := m.(type) {
	case *wire.Assistant:
		return m.UUID
	case *wire.Result:
		return m.UUID
	case *wire.BadLine:
		return string(m.Text)
	}
	t.Fatalf("got a %T", m)
	return ""
}

// add pushes the message with a number: a line, a message, or a bad line.
func (q *queue) addNumber(i, size int) error {
	switch i % 7 {
	case 3:
		return q.push(&wire.Result{UUID: fmt.Sprint(i), Result: strings.Repeat("x", size)}, size)
	case 5:
		return q.push(&wire.BadLine{Text: fmt.Append(nil, i), Size: int64(size), Err: wire.ErrLineTooLong}, size)
	}
	defer q.flush()
	return q.pushLine(numbered(i, size))
}

// TestQueueOrder goes from memory to files and back several times.
func TestQueueOrder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	q := newQueue(4<<10, 1<<20)
	q.spill.fileSize = 16 << 10
	defer q.discard()
	pushed, popped, files := 0, 0, 0
	for range 3 {
		for range 300 {
			if err := q.addNumber(pushed, 100); err != nil {
				t.Fatal(err)
			}
			pushed++
		}
		if q.size > q.memory {
			t.Errorf("%d bytes in memory", q.size)
		}
		files = max(files, len(q.spill.files))
		if entries, err := os.ReadDir(os.Getenv("TMPDIR")); runtime.GOOS != "windows" && (err != nil || len(entries) > 0) {
			t.Errorf("there are files with names: %v, %v", entries, err)
		}
		for popped < pushed {
			m, err := q.pop(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := numberOf(t, m); got != fmt.Sprint(popped) {
				t.Fatalf("got %s, want %d", got, popped)
			}
			popped++
		}
		if len(q.spill.files) != 0 || q.spill.size != 0 {
			t.Errorf("all was read, but %d bytes in %d files are left", q.spill.size, len(q.spill.files))
		}
	}
	if files < 2 {
		t.Errorf("%d files were used at once", files)
	}
}

// TestQueueBehind checks that the producer decodes lines while the consumer has much to
// read, but not for a consumer that does not read at all, and that the result is the
// same.
func TestQueueBehind(t *testing.T) {
	q := newQueue(16<<20, 64<<20)
	defer q.discard()
	pushed, popped := 0, 0
	fill := func(size int64) {
		for q.size < size {
			if err := q.addNumber(pushed, 2000); err != nil {
				t.Fatal(err)
			}
			pushed++
		}
	}
	apart := func() (n int) {
		for _, e := range q.items {
			if _, ok := e.m.(*wire.Assistant); ok {
				n++
			}
		}
		return n
	}
	fill(behindSize)
	if n := apart(); n > 0 {
		t.Errorf("the producer took %d lines apart though the consumer has little to read", n)
	}
	fill(paceSize)
	n := apart()
	if n < 100 {
		t.Errorf("the producer took %d lines apart", n)
	}
	fill(paceSize + 1<<20) // for which it waits in vain, once
	if more := apart() - n; more > 5 {
		t.Errorf("the producer took %d lines apart for a consumer that does not read", more)
	}
	for ; popped < pushed; popped++ {
		m, err := q.pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := numberOf(t, m); got != fmt.Sprint(popped) {
			t.Fatalf("got %s, want %d", got, popped)
		}
		if a, ok := m.(*wire.Assistant); ok && len(a.Message.Content.String()) != 2000 {
			t.Fatalf("message %d has a text of %d bytes", popped, len(a.Message.Content.String()))
		}
	}
}

// TestQueueReleasesOnce reads a batch of decoded messages, which a consumer that is behind gets: each
// of them is visited once, not again at each message after it.
func TestQueueReleasesOnce(t *testing.T) {
	q := newQueue(16<<20, 64<<20)
	for range 100 {
		if err := q.push(&wire.Result{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if _, err := q.pop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q.released != q.next || i < 99 && q.next != i+1 {
			t.Fatalf("after %d messages, %d of %d are released", i+1, q.released, q.next)
		}
	}
}

// TestQueueFilesShrink checks that the space of what was read is freed even if the
// queue never becomes empty.
func TestQueueFilesShrink(t *testing.T) {
	q := newQueue(0, 1<<20)
	q.spill.fileSize = 16 << 10
	defer q.discard()
	for i := range 2000 {
		if err := q.addNumber(i, 1000); err != nil {
			t.Fatal(err)
		}
		if i >= 10 {
			if _, err := q.pop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(q.spill.files); n > 3 {
			t.Fatalf("%d files after %d messages", n, i)
		}
	}
}

// TestQueueOverflow checks both limits: accepted messages can be read, then comes the
// error.
func TestQueueOverflow(t *testing.T) {
	for _, tt := range []struct{ memory, total int64 }{{1 << 10, 10 << 10}, {10 << 10, 10 << 10}, {100 << 10, 10 << 10}, {0, 10 << 10}, {10, 10}} {
		q := newQueue(tt.memory, tt.total)
		n := 0
		var err error
		for err == nil {
			if err = q.addNumber(n, 100); err == nil {
				n++
			}
		}
		var overflow *OverflowError
		if !errors.As(err, &overflow) || overflow.Limit != tt.total || overflow.Bytes <= tt.total {
			t.Errorf("%+v: %v", tt, err)
		}
		if tt.total > 1000 && (n < 20 || n > 100) {
			t.Errorf("%+v: %d messages fit", tt, n)
		}
		q.close(err)
		for i := range n {
			m, err := q.pop(t.Context())
			if err != nil {
				t.Fatalf("%+v: message %d: %v", tt, i, err)
			}
			if got := numberOf(t, m); got != fmt.Sprint(i) {
				t.Fatalf("got %s, want %d", got, i)
			}
		}
		for range 2 {
			if _, got := q.pop(t.Context()); got != err {
				t.Errorf("the end is %v", got)
			}
		}
		q.discard()
	}
}

// TestQueueBadLines checks that a bad line is unchanged after it was in a file.
func TestQueueBadLines(t *testing.T) {
	q := newQueue(0, 1<<20)
	defer q.discard()
	_, decode := wire.Decode([]byte("{oops"))
	var syntax *wire.BadLine
	if !errors.As(decode, &syntax) {
		t.Fatal(decode)
	}
	lines := []*wire.BadLine{
		{Text: []byte("a\nb\x00"), Size: 1 << 40, Err: wire.ErrLineTooLong},
		{Text: nil, Size: 5, Err: io.ErrUnexpectedEOF},
		{Text: []byte("{oops"), Size: 5, Err: syntax.Err},
	}
	for _, bad := range lines {
		if err := q.push(bad, len(bad.Text)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range lines {
		m, err := q.pop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := m.(*wire.BadLine)
		if string(got.Text) != string(want.Text) || got.Size != want.Size || got.Err.Error() != want.Err.Error() {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if i < 2 && !errors.Is(got.Err, want.Err) {
			t.Errorf("%v is not %v", got.Err, want.Err)
		}
	}
	// A line that turns out to be bad when it is decoded.
	if err := q.pushLine([]byte("{oops")); err != nil {
		t.Fatal(err)
	}
	if m, err := q.pop(t.Context()); err != nil || numberOf(t, m) != "{oops" {
		t.Errorf("got %v, %v", m, err)
	}
}

// TestQueueDisk checks a disk that accepts nothing.
func TestQueueDisk(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("TMPDIR means nothing here")
	}
	t.Setenv("TMPDIR", "/there/is/no/such/directory")
	q := newQueue(1<<10, 1<<20)
	defer q.discard()
	var err error
	for i := 0; err == nil; i++ {
		err = q.addNumber(i, 100)
	}
	var unwritable *BufferError
	if !errors.Is(err, os.ErrNotExist) || !errors.As(err, &unwritable) || unwritable.Dir != "/there/is/no/such/directory" {
		t.Errorf("got %v", err)
	}
}

// TestQueueEnd checks the state after close and discard.
func TestQueueEnd(t *testing.T) {
	end := errors.New("the end")
	q := newQueue(1<<10, 1<<20)
	for i := range 100 {
		q.addNumber(i, 100)
	}
	q.close(end)
	q.close(errors.New("too late"))
	if err := q.addNumber(100, 100); err != nil {
		t.Errorf("a message after the end: %v", err)
	}
	for range 100 {
		if _, err := q.pop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.pop(t.Context()); err != end {
		t.Errorf("the end is %v", err)
	}

	q = newQueue(1<<10, 1<<20)
	for i := range 100 {
		q.addNumber(i, 100)
	}
	q.discard()
	if len(q.spill.files) != 0 {
		t.Error("a file is left")
	}
	q.addNumber(100, 100<<10)
	if _, err := q.pop(t.Context()); err != ErrClosed || len(q.spill.files) != 0 {
		t.Errorf("the end is %v, %d files", err, len(q.spill.files))
	}
}

// TestQueueContext checks that waiting ends with the context, and that nothing is lost
// by it.
func TestQueueContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1<<10, 1<<20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.pop(ctx); err != context.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		q.addNumber(0, 0)
		if _, err := q.pop(ctx); err != context.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		if m, err := q.pop(t.Context()); err != nil || numberOf(t, m) != "0" {
			t.Errorf("got %v, %v", m, err)
		}
		go func() {
			time.Sleep(time.Second)
			q.addNumber(1, 0)
		}()
		if m, err := q.pop(t.Context()); err != nil || numberOf(t, m) != "1" {
			t.Errorf("got %v, %v", m, err)
		}
	})
}

// TestQueueModel compares a queue with a slice while a producer and a consumer run at
// their own pace.
func TestQueueModel(t *testing.T) {
	for seed := range uint64(30) {
		q := newQueue(1<<10, 1<<30)
		q.spill.fileSize = 8 << 10
		pushed, popped := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		n := 200 + pushed.IntN(1000)
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := range n {
				if err := q.addNumber(i, pushed.IntN(300)); err != nil {
					t.Error(err)
				}
				if pushed.IntN(100) == 0 {
					testwait.Pause(time.Duration(pushed.IntN(200)) * time.Microsecond)
				}
			}
			q.close(io.EOF)
		})
		for i := 0; ; {
			ctx, cancel := t.Context(), func() {}
			switch popped.IntN(60) {
			case 0:
				testwait.Pause(time.Duration(popped.IntN(500)) * time.Microsecond)
			case 1:
				ctx, cancel = context.WithCancel(ctx)
				go cancel()
			}
			m, err := q.pop(ctx)
			late := ctx.Err() != nil
			cancel()
			if err == io.EOF {
				if i != n {
					t.Errorf("seed %d: %d of %d messages came", seed, i, n)
				}
				break
			}
			if err != nil {
				if !late {
					t.Fatalf("seed %d: %v", seed, err)
				}
				continue
			}
			if got := numberOf(t, m); got != fmt.Sprint(i) {
				t.Fatalf("seed %d: got %s, want %d", seed, got, i)
			}
			i++
		}
		producer.Wait()
		if len(q.spill.files) != 0 {
			t.Errorf("seed %d: a file is left", seed)
		}
	}
}

// TestQueueDiscardWhilePushing checks that no file is left, whenever the consumer gives
// up.
func TestQueueDiscardWhilePushing(t *testing.T) {
	for range 20 {
		q := newQueue(2<<20, 1<<30)
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := range 300 {
				q.addNumber(i, 10<<10)
			}
		})
		testwait.Pause(time.Duration(rand.IntN(4000)) * time.Microsecond)
		q.discard()
		producer.Wait()
		if len(q.spill.files) != 0 || len(q.items) != 0 {
			t.Fatalf("%d files, %d messages are left", len(q.spill.files), len(q.items))
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	line := []byte(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words"}}}`)
	for name, memory := range map[string]int64{"memory": 16 << 20, "file": 0} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			q := newQueue(memory, 1<<40)
			defer q.discard()
			go func() {
				for range b.N {
					q.pushLine(line)
				}
				q.close(io.EOF)
			}()
			for {
				if _, err := q.pop(b.Context()); err != nil {
					return
				}
			}
		})
	}
}
