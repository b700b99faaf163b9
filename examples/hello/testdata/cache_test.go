package cache

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	go fill()
	time.Sleep(10 * time.Millisecond)
	if !full() {
		t.Error("not full")
	}
}
