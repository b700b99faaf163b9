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
	page := filepath.Join(dir, "page.md")
	if err := os.Mkdir(filepath.Join(dir, "img"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte(`
| | claude | Parley | ratio | wanted | |
|---|---:|---:|---:|---:|---|
| claude: start to result | 1,250 ±54.2 ms | 12.5 ±0.43 ms | 100× |  |  |
| codex: start to result | 500 ms | 12.5 ±0.43 ms | 40.0× |  |  |
| peak memory, one turn | 200 MB | 20.0 MB | 10.0× |  |  |
| 10 as processes | 1,000 MB | 100 MB | 27.7× |  |  |
| 100 as processes |  | 298 MB |  |  |  |
| 10 in one process |  | 10 MB |  |  |  |
| turn 10 |  | 500 ±3.00 µs |  |  |  |
| turn 2,000 |  | 1,000 µs |  |  |  |
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := drawPictures(page); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"agents.svg":      {">1,250 ms<", `width="500.0"`, ">12.5 ms<", `width="5.0"`, ">codex<", `width="200.0"`, ">20.0 MB<"},
		"performance.svg": {">1 GB<", "claude, processes", "sessions at once", `points="90.0,48.0"`, `points="90.0,219.0 530.0,`},
		"turns.svg":       {">2,000<", ">500<", "in microseconds", `points="92.2,219.0 530.0,48.0"`},
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
