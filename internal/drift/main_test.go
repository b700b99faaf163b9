package main

import (
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	sides := []*side{{title: "The CLI", explain: "Driven.", peers: []peer{
		{
			version: "2.0", rules: verdict{hold: 2, all: 3, broken: []string{"interrupt"}}, talks: verdict{hold: 1, all: 1},
			surface: map[string][]string{"flag": {"--a", "--b"}, "option": {"max_turns"}, "tool": {"Read"}},
		},
		{
			version: "1.0", rules: verdict{hold: 3, all: 3}, talks: verdict{hold: 1, all: 1},
			surface: map[string][]string{"flag": {"--a", "--old"}, "option": {"model"}},
		},
	}}}
	page := string(write(sides, map[string]string{"--b": "absent", "maxTurns": "same"}))
	for _, want := range []string{
		"| 2.0 | 2 of 3 | 1 of 1 | interrupt |",
		"| 1.0 | 3 of 3 | 1 of 1 |  |",
		"| 2.0 | + flag `--b` (absent), − flag `--old`, + option `max_turns` (same), − option `model` |",
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page lacks the line %q:\n%s", want, page)
		}
	}
}

func TestStates(t *testing.T) {
	states, err := surfaceStates("../house/testdata/surface.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(states) < 500 || states["maxTurns"] != "same" {
		t.Errorf("%d states, maxTurns is %q", len(states), states["maxTurns"])
	}
}
