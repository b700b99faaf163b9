package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkTimes is the file to which make check and .ci/run append how long they took, if TIMES names it.
var checkTimes = filepath.Join("bench", "checks.txt")

// checkLimits are the goals for the time of the checks, in seconds.
var checkLimits = []struct {
	command string
	seconds float64
}{{"make check", 360}, {".ci/run", 900}}

// addChecks adds the last recorded time of each check. They run for too long to be measured with the rest.
func addChecks(b *board, file string) error {
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	last, err := parseChecks(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	b.begin("The checks", "at commit", "Measured on two quiet processors, in a fresh clone. `TIMES=$PWD/bench/checks.txt bash .ci/run` records both rows; this table has the last of each.")
	for _, c := range checkLimits {
		if r, ok := last[c.command]; ok {
			r.limit = c.seconds
			b.add(r)
		}
	}
	return nil
}

// parseChecks returns the last row of each command. A line is a command, a tab, its seconds, a tab and
// the commit.
func parseChecks(text string) (map[string]row, error) {
	last := map[string]row{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("%q is not a command, its seconds and a commit, separated by tabs", line)
		}
		seconds, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil, err
		}
		last[f[0]] = row{title: "`" + f[0] + "`", unit: "s", ours: []float64{seconds}, none: f[2]}
	}
	return last, nil
}
