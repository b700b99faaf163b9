package cli

import (
	"slices"
	"strings"
	"testing"
)

// TestFlagRows: every flag has one row with its help, and a value exactly if it takes one.
func TestFlagRows(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range flagTable {
		for _, f := range g.flags {
			for _, n := range f.names {
				if seen[n] {
					t.Errorf("%s has two rows", n)
				}
				seen[n] = true
			}
			if f.help == "" || f.set == nil || (f.value == "") != (f.kind == flagBool || f.kind == flagOptional) {
				t.Errorf("%s: value %q, help %q", f.names[0], f.value, f.help)
			}
		}
	}
	for line := range strings.Lines(Help()) {
		if len(line) > 90 {
			t.Errorf("too long: %s", line)
		}
	}
}

// TestInertFlags: flags that SDKs pass and that have no effect here are accepted, and named.
func TestInertFlags(t *testing.T) {
	for name := range satisfiedFlags { // they ask for what the agent does anyway
		if f, err := Parse([]string{name, "--", "prompt"}); err != nil || f.Ignored != nil || f.Prompt != "prompt" {
			t.Errorf("%s: %v %+v", name, err, f)
		}
	}
	for name, kind := range ignoredFlags {
		args := []string{name}
		if kind != flagBool {
			args = append(args, "x")
		}
		f, err := Parse(append(args, "--", "prompt"))
		if err != nil || !slices.Equal(f.Ignored, []string{name}) || f.Prompt != "prompt" {
			t.Errorf("%s: %v %+v", name, err, f)
		}
	}
}
