package process_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both ends and the file are correct, however the output is split into writes.
func TestSpool(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 128<<10 - 1, 128 << 10, 128<<10 + 1, 150 << 10, 160 << 10, 160<<10 + 1, 500_000} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rand.Uint32())
		}
		s := process.NewSpool(files.InSession(&tool.Env{Dir: t.TempDir()}, "d/out"), 1<<30, nil)
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(40_000))
			s.Write(rest[:n])
			rest = rest[n:]
		}
		whole, ok := s.Whole()
		if ok != (size <= 128<<10) || ok && !bytes.Equal(whole, data) || s.Total() != int64(size) {
			t.Errorf("%d: whole %v", size, ok)
		}
		for _, n := range []int{0, 1, 1000, 30_000, 40_000, 200_000, 1 << 20} {
			if got := s.Tail(n); !bytes.Equal(got, data[max(0, size-n):]) {
				t.Errorf("%d: the last %d are wrong (%d)", size, n, len(got))
			}
			if got := s.Head(n); !bytes.Equal(got, data[:min(n, size, 128<<10)]) {
				t.Errorf("%d: the first %d are wrong", size, n)
			}
		}
		s.Close()
		if size == 0 {
			continue
		}
		if got, err := os.ReadFile(s.Persist()); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d: the file is wrong: %v", size, err)
		}
	}
}

// A spool stops at its limit, and reports that once.
func TestLimit(t *testing.T) {
	var mu sync.Mutex
	n := 0
	full := make(chan struct{})
	s := process.NewSpool(files.InSession(&tool.Env{Dir: t.TempDir()}, "out"), 200_000, func() {
		mu.Lock()
		defer mu.Unlock()
		n++
		close(full)
	})
	for range 100 {
		s.Write(make([]byte, 10_000))
	}
	<-full
	s.Close()
	mu.Lock()
	defer mu.Unlock()
	if info, err := os.Stat(s.Persist()); err != nil || info.Size() != 200_000 || s.Total() != 200_000 || n != 1 {
		t.Errorf("%v, %d bytes, %d times", err, s.Total(), n)
	}
}

// Without a place for its file it keeps both ends.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o666)
	for _, store := range []process.Store{nil, files.InSession(&tool.Env{Dir: dir}, "file/out")} {
		s := process.NewSpool(store, 1<<30, nil)
		for range 100 {
			s.Write(make([]byte, 10_000))
		}
		s.Write([]byte("end"))
		if s.Persist() != "" || s.Err() == nil || !bytes.HasSuffix(s.Tail(100), []byte("end")) || len(s.Tail(1<<20)) != 32<<10 {
			t.Errorf("%v: %v", store, s.Err())
		}
		s.Close()
	}
}
