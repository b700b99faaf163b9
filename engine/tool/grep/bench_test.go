package grep_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// BenchmarkGoTree searches the source of Go, and reports how much longer it takes
// than ripgrep, or GNU grep where there is none.
func BenchmarkGoTree(b *testing.B) {
	dir := filepath.Join(goRoot(b), "src")
	for name, pattern := range map[string]string{"Literal": "ErrUnexpectedEOF", "Common": "return", "NoLiteral": "[A-Z]{3}[0-9]{4,}", "IgnoreCase": "(?i)errunexpectedeof"} {
		b.Run(name, func(b *testing.B) {
			env := tooltest.Env(b)
			env.Roots = []string{dir}
			for b.Loop() {
				if r := tooltest.Do(b, env, grep.New(), "pattern", pattern); r.IsError {
					b.Fatal(r.Content.Text)
				}
			}
		})
		b.Run(name+"Peer", func(b *testing.B) {
			args := []string{"rg", "-l", "--hidden", pattern, dir}
			if _, err := exec.LookPath("rg"); err != nil {
				if name == "IgnoreCase" {
					pattern = "errunexpectedeof"
				}
				args = []string{"grep", "-rlEI", pattern, dir}
				if name == "IgnoreCase" {
					args = append(args, "-i")
				}
			}
			for b.Loop() {
				cmd := exec.Command(args[0], args[1:]...)
				cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
				cmd.Run()
			}
		})
	}
}
