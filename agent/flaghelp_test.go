package agent

import (
	"slices"
	"strings"
	"testing"
)

func TestFlagHelp(t *testing.T) {
	described := map[string]bool{}
	for _, g := range flagHelp {
		for _, f := range g.flags {
			names := namesOf(f[0])
			if names == nil {
				t.Errorf("%s is described and does not exist", f[0])
			}
			for _, n := range names {
				if described[n] {
					t.Errorf("%s is described twice", n)
				}
				described[n] = true
			}
			i := slices.IndexFunc(flagTable, func(s flagSpec) bool { return slices.Contains(s.names, f[0]) })
			if i >= 0 && (f[1] == "") != (flagTable[i].kind == flagBool || flagTable[i].kind == flagOptional) {
				t.Errorf("%s: value %q", f[0], f[1])
			}
		}
	}
	for _, f := range flagTable {
		for _, n := range f.names {
			if !described[n] {
				t.Errorf("%s is not described", n)
			}
		}
	}
	for line := range strings.Lines(FlagHelp()) {
		if len(line) > 90 {
			t.Errorf("too long: %s", line)
		}
	}
}
