package main

import "testing"

// TestHolds judges goals by the quartile on the worse side.
func TestHolds(t *testing.T) {
	nine := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for name, c := range map[string]struct {
		row    row
		holds  bool
		wanted string
	}{
		"a limit that the quartile meets":    {row{ours: nine, unit: "ms", limit: 7}, true, "≤ 7.00 ms"},
		"a limit that only the median meets": {row{ours: nine, unit: "ms", limit: 6}, false, "≤ 6.00 ms"},
		"at least":                           {row{ours: nine, unit: "/s", more: true, least: 3}, true, "≥ 3.00 /s"},
		"at least, missed":                   {row{ours: nine, unit: "/s", more: true, least: 4}, false, "≥ 4.00 /s"},
		"a factor, pair by pair":             {row{theirs: []float64{2, 4, 6, 8, 10, 12, 14, 16, 18}, ours: nine, want: 2}, true, "≥ 2.00×"},
		"a factor beside few runs":           {row{theirs: []float64{7}, ours: nine, want: 1}, true, "≥ 1.00×"},
		"both":                               {row{theirs: []float64{7}, ours: nine, unit: "ms", want: 2, limit: 7}, false, "≤ 7.00 ms, ≥ 2.00×"},
	} {
		if c.row.holds() != c.holds || c.row.wanted() != c.wanted {
			t.Errorf("%s: %v, %q", name, c.row.holds(), c.row.wanted())
		}
	}
}

func TestLastTimeOfEachCheckCounts(t *testing.T) {
	last, err := parseChecks("# seconds\nmake check\t458\tabc\n.ci/run\t826\tabc\nmake check\t300\tdef\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := last["make check"], 300.0; len(got.ours) != 1 || got.ours[0] != want || got.none != "def" {
		t.Errorf("make check took %v at %s, want %v at def", got.ours, got.none, want)
	}
	if _, ok := last[".ci/run"]; !ok || len(last) != 2 {
		t.Errorf("the checks are %v, want make check and .ci/run", last)
	}
	if _, err := parseChecks("make check 300\n"); err == nil {
		t.Error("a line without tabs is accepted")
	}
}
