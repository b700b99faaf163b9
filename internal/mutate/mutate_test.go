package main

import (
	"slices"
	"strings"
	"testing"
)

// TestMutants tries all mutants of the package in testdata.
func TestMutants(t *testing.T) {
	*at, *all = "sample.go", true
	var got []string
	report = func(line string) { got = append(got, line) }
	killed, tried, err := mutatePackage(t.TempDir(), []string{"./testdata/sample"})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	want := strings.TrimSpace(`
killed: sample.go:15: && became ||
killed: sample.go:15: the condition is reversed
killed: sample.go:18: != became ==
killed: sample.go:19: an error is not returned
killed: sample.go:22: - became +
survived, not reached: sample.go:15: > became >=
survived, not reached: sample.go:15: > became >=
survived, not reached: sample.go:27: == became !=
survived, not reached: sample.go:27: true became false
survived, not reached: sample.go:28: 2 became one more
survived, not reached: sample.go:30: 0 became one more
survived, not reached: sample.go:30: 1 became one more
survived: sample.go:15: 0 became one more
survived: sample.go:21: a call is left out
`)
	if strings.Join(got, "\n") != want || killed != 5 || tried != 14 {
		t.Errorf("got %d of %d killed:\n%s\nwant\n%s", killed, tried, strings.Join(got, "\n"), want)
	}
}
