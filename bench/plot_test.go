package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPicturesShowTheNumbersOfThePage draws the pictures of a small page.
func TestPicturesShowTheNumbersOfThePage(t *testing.T) {
	dir := t.TempDir()
	page, counts := filepath.Join(dir, "page.md"), filepath.Join(dir, "counts.txt")
	if err := os.Mkdir(filepath.Join(dir, "img"), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		page: `
| | claude | Parley | ratio | wanted | |
|---|---:|---:|---:|---:|---|
| start to result | 1,234 ±54.2 ms | 12.5 ±0.43 ms | 38.9× | ≥ 20.0× | holds |
| 10 as processes | 1,000 MB | 100 MB | 27.7× |  |  |
| 100 as processes |  | 298 MB |  |  |  |
| 10 in one process |  | 10 MB |  |  |  |
`,
		counts: "# a comment\nhold a turn in process  1500000\nhold a turn in process after 1,000  3000000\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := drawPictures(page, counts); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"agents.svg":      {"1,234 ms", `width="440.0"`, "12.5 ms", `width="4.5"`},
		"performance.svg": {">1 GB<", "claude, processes", `points="236.7,48.0"`, `points="236.7,219.0 383.3,`},
		"turns.svg":       {"1.50 million", `width="220.0"`, "3.00 million"},
	} {
		got, err := os.ReadFile(filepath.Join(dir, "img", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(got), w) {
				t.Errorf("%s lacks %s:\n%s", file, w, got)
			}
		}
	}
}
