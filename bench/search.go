package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/engine/tool/grep"
)

// A searching is one search with Grep or Glob and with ripgrep.
type searching struct {
	title string
	tool  tool.Tool
	input map[string]any
	rg    []string
}

// searchings are with a literal and without one.
var searchings = []searching{
	{"Grep ErrUnexpectedEOF", grep.New(), map[string]any{"pattern": "ErrUnexpectedEOF"}, []string{"-l", "ErrUnexpectedEOF"}},
	{"Grep return", grep.New(), map[string]any{"pattern": "return"}, []string{"-l", "return"}},
	{"Grep -i errunexpectedeof", grep.New(), map[string]any{"pattern": "errunexpectedeof", "-i": true}, []string{"-l", "-i", "errunexpectedeof"}},
	{`Grep func \(\w+ \*?\w+\) Close\(`, grep.New(), map[string]any{"pattern": `func \(\w+ \*?\w+\) Close\(`}, []string{"-l", `func \(\w+ \*?\w+\) Close\(`}},
	{"Grep ErrUnexpectedEOF, lines", grep.New(), map[string]any{"pattern": "ErrUnexpectedEOF", "output_mode": "content", "-C": 2}, []string{"-n", "-C2", "ErrUnexpectedEOF"}},
	{"Grep (Mutex|WaitGroup)", grep.New(), map[string]any{"pattern": "(Mutex|WaitGroup)"}, []string{"-l", "(Mutex|WaitGroup)"}},
	{"Grep [A-Z]{3}[0-9]{4,}", grep.New(), map[string]any{"pattern": "[A-Z]{3}[0-9]{4,}"}, []string{"-l", "[A-Z]{3}[0-9]{4,}"}},
	{`Grep \w+_\d+_\w+, counts`, grep.New(), map[string]any{"pattern": `\w+_\d+_\w+`, "output_mode": "count"}, []string{"-c", `\w+_\d+_\w+`}},
	{`Grep ^\s+\w\w$`, grep.New(), map[string]any{"pattern": `^\s+\w\w$`}, []string{"-l", `^\s+\w\w$`}},
	{"Glob **/*_test.go", glob.New(), map[string]any{"pattern": "**/*_test.go"}, []string{"--files", "-g", "**/*_test.go"}},
}

// compareSearch measures Grep and Glob against ripgrep on the source of Go,
// alternately. The tool runs in this process, as in the agent; ripgrep is a
// process.
func compareSearch(b *board, n int) error {
	rg, err := exec.LookPath("rg")
	if err != nil {
		fmt.Fprintf(b.w, "\nGrep and Glob are not compared: there is no ripgrep (rg) on the path.\n")
		return nil
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("where is the source of Go: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "src")
	env := &tool.Env{Roots: []string{dir}}
	defer env.Close()
	b.begin("Search", "ripgrep", "Grep and Glob on the source of Go. The tools run in this process, as in the agent; ripgrep is a process of its own.")
	for _, s := range searchings {
		input, err := json.Marshal(s.input)
		if err != nil {
			return err
		}
		var theirs, ours []float64
		for i := range n + 1 {
			cmd := exec.Command(rg, append(append([]string{"--no-config", "--hidden", "--no-messages"}, s.rg...), dir)...)
			start := time.Now()
			if data, err := cmd.Output(); err != nil || len(data) == 0 {
				return fmt.Errorf("%s found %d bytes: %w", strings.Join(cmd.Args, " "), len(data), err)
			}
			theirWall := ms(time.Since(start))
			start = time.Now()
			r, err := s.tool.Run(context.Background(), &tool.Call{Input: input, Env: env})
			if err != nil || r.IsError {
				return fmt.Errorf("%s: %v", s.title, err)
			}
			ourWall := ms(time.Since(start))
			if i == 0 {
				continue // warm-up
			}
			theirs, ours = append(theirs, theirWall), append(ours, ourWall)
		}
		b.add(row{title: "`" + s.title + "`", unit: "ms", theirs: theirs, ours: ours, want: 1})
	}
	return nil
}
