package history

import (
	"slices"
	"sync"
	"testing"
)

func TestSharedValuesAreMadeOnce(t *testing.T) {
	s := Shared[[]string, *int]{Same: slices.Equal[[]string]}
	made := 0
	get := func(key ...string) *int { return s.Get(key, func() *int { made++; return new(int) }) }
	first := get("a", "b")
	if get("a", "b") != first || made != 1 {
		t.Errorf("the value of the same key was made %d times, want once", made)
	}
	for i := range sharedMany {
		get(string(rune('0' + i)))
	}
	if n := len(*s.last.Load()); n != sharedMany {
		t.Errorf("%d values are held, want %d", n, sharedMany)
	}
	if get("a", "b") == first {
		t.Error("the oldest value is held, want it gone")
	}
}

func TestSharedAtOnce(t *testing.T) {
	s := Shared[int, int]{Same: func(a, b int) bool { return a == b }}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 1000 {
				if got := s.Get((i+k)%20, func() int { return (i + k) % 20 * 2 }); got != (i+k)%20*2 {
					t.Errorf("got %d for %d", got, (i+k)%20)
				}
			}
		})
	}
	wg.Wait()
}
