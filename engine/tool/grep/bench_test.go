package grep

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
)

// BenchmarkGrep searches the source of Go. Compare the processor time with that of rg.
func BenchmarkGrep(b *testing.B) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skip(err)
	}
	env := &tool.Env{Roots: []string{filepath.Join(strings.TrimSpace(string(out)), "src")}}
	defer env.Close()
	for _, c := range []struct{ name, input string }{
		{"files", `{"pattern":"ErrUnexpectedEOF"}`},
		{"lines", `{"pattern":"ErrUnexpectedEOF","output_mode":"content","-C":2}`},
		{"alternatives", `{"pattern":"(Mutex|WaitGroup)"}`},
		{"classes", `{"pattern":"[A-Z]{3}[0-9]{4,}"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, err := New().Run(b.Context(), &tool.Call{Input: json.RawMessage(c.input), Env: env})
				if err != nil || r.IsError {
					b.Fatal(err)
				}
			}
		})
	}
}
