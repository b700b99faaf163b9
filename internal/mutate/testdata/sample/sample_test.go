package sample

import "testing"

func TestTake(t *testing.T) {
	logged := 0
	if left, err := Take(9, 2, func(string) { logged++ }); left != 7 || err != nil || logged > 1 {
		t.Errorf("got %d, %v, want 7", left, err)
	}
	if left, err := Take(9, 4, func(string) { logged++ }); left != 0 || err == nil {
		t.Errorf("got %d, %v, want 0 and an error", left, err)
	}
}
