package policytest

import "testing"

func TestEverydayTableIsLongEnough(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range EverydayCommands() {
		if seen[c.Command] {
			t.Errorf("everyday.txt:%d: %q is there twice", c.Line, c.Command)
		}
		seen[c.Command] = true
	}
	if len(seen) < 150 {
		t.Errorf("%d commands, want at least 150", len(seen))
	}
}
