package builtin_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/wire"
)

// TestBounds gives every tool far too large files, lines, matches, results and inputs.
// Allocated memory is limited to a small multiple of the read limit, and the result for
// the model to the documented limit.
func TestBounds(t *testing.T) {
	const n = 1 << 15
	env := tooltest.Env(t)
	root := env.Roots[0]
	huge := strings.Repeat("x", 2*n)
	files := map[string]string{
		"line.txt":      strings.Repeat("needle ", 8*n),
		"matches.txt":   strings.Repeat("needle\n", n),
		"long.txt":      strings.Repeat(strings.Repeat("needle ", 1000)+"\n", 1000),
		"cells.ipynb":   `{"cells":[` + strings.Repeat(`{"cell_type":"code","id":"a","metadata":{},"outputs":[],"execution_count":null,"source":["needle"]},`, 12_000) + `{"cell_type":"code","id":"last","metadata":{},"outputs":[],"execution_count":null,"source":["x"]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`,
		"output.ipynb":  `{"cells":[{"cell_type":"code","id":"last","metadata":{},"execution_count":1,"outputs":[{"output_type":"stream","name":"stdout","text":["` + strings.Repeat("needle ", n) + `"]}],"source":["x"]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`,
		"image.png":     "\x89PNG\r\n\x1a\n",
		"objects.pdf":   "%PDF-1.4\n" + strings.Repeat("1 0 obj<<>>endobj\n", n),
		"streams.pdf":   "%PDF-1.4\n" + strings.Repeat("1 0 obj<<>>stream\n", n),
		"strings.pdf":   "%PDF-1.4\n" + strings.Repeat("1 0 obj(", n),
		"arrays.pdf":    "%PDF-1.4\n" + strings.Repeat("1 0 obj[", n),
		"hex.pdf":       "%PDF-1.4\n" + strings.Repeat("1 0 obj<", n),
		"trailers.pdf":  "%PDF-1.4\n" + strings.Repeat("trailer(", n),
		"nothing/x.txt": "",
	}
	for name, content := range files {
		tooltest.Write(t, env, name, content)
	}
	if err := os.Truncate(filepath.Join(root, "image.png"), 40<<20); err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		tooltest.Write(t, env, "nothing/"+strings.Repeat("n", 200)+strconv.Itoa(i), "")
	}
	byName := map[string]tool.Tool{}
	for _, to := range builtin.All(nil) {
		byName[to.Spec().Name] = to
	}
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	list := func(n int, item map[string]any) (all []any) {
		for range n {
			all = append(all, item)
		}
		return all
	}
	played := map[string]bool{}
	for _, row := range []struct {
		tool  string
		pairs []any
	}{
		{"Read", []any{"file_path", at("line.txt")}},
		{"Read", []any{"file_path", at("matches.txt")}},
		{"Read", []any{"file_path", at("matches.txt"), "offset", 30_000, "limit", 1_000_000}},
		{"Read", []any{"file_path", at("long.txt"), "allow_large", true}},
		{"Read", []any{"file_path", at("cells.ipynb")}},
		{"Read", []any{"file_path", at("output.ipynb")}},
		{"Read", []any{"file_path", at("image.png")}},
		{"Read", []any{"file_path", at("objects.pdf")}},
		{"Read", []any{"file_path", at("streams.pdf")}},
		{"Read", []any{"file_path", at("strings.pdf")}},
		{"Read", []any{"file_path", at("arrays.pdf")}},
		{"Read", []any{"file_path", at("hex.pdf")}},
		{"Read", []any{"file_path", at("trailers.pdf")}},
		{"Grep", []any{"pattern", "needle", "path", at("line.txt"), "output_mode", "content"}},
		{"Grep", []any{"pattern", "needle", "path", at("matches.txt"), "output_mode", "content"}},
		{"Grep", []any{"pattern", "needle", "path", root, "output_mode", "content", "-C", 100_000}},
		{"Grep", []any{"pattern", "(needle )*", "path", at("line.txt"), "output_mode", "content", "multiline", true}},
		{"Grep", []any{"pattern", "(?s).*", "path", at("matches.txt"), "output_mode", "content", "multiline", true}},
		{"Grep", []any{"pattern", "(?s).", "path", at("line.txt"), "output_mode", "content", "multiline", true, "-o", true}},
		{"Grep", []any{"pattern", "(?s).*", "path", root, "output_mode", "count"}},
		{"Grep", []any{"pattern", "^", "path", at("matches.txt"), "output_mode", "count"}},
		{"Grep", []any{"pattern", "needle", "path", root}},
		{"Glob", []any{"pattern", "**/*", "path", root}},
		{"Glob", []any{"pattern", strings.Repeat("{a,b}", 100), "path", root}},
		{"Glob", []any{"pattern", strings.Repeat("**/", 100), "path", root}},
		{"Edit", []any{"file_path", at("matches.txt"), "old_string", "needle", "new_string", huge[:1000], "replace_all", true}},
		{"Edit", []any{"file_path", at("line.txt"), "old_string", "needle", "new_string", huge, "replace_all", true}},
		{"Write", []any{"file_path", at("matches.txt"), "content", huge}},
		{"NotebookEdit", []any{"notebook_path", at("cells.ipynb"), "cell_id", "last", "new_source", huge}},
		{"NotebookEdit", []any{"notebook_path", at("output.ipynb"), "cell_id", "last", "new_source", huge}},
		{"Bash", []any{"command", "head -c 5000000 /dev/zero | tr '\\0' x"}},
		{"Bash", []any{"command", ": " + huge}},
		{"Monitor", []any{"description", "d", "timeout_ms", 1000, "command", ": " + huge}},
		{"TaskOutput", []any{"task_id", huge}},
		{"TaskStop", []any{"task_id", huge}},
		{"TodoWrite", []any{"todos", list(20_000, map[string]any{"content": "a", "status": "pending", "activeForm": "a"})}},
		{"WebFetch", []any{"url", "http://127.0.0.1:1/" + huge, "prompt", "x"}},
		{"WebSearch", []any{"query", huge}},
		{"ReportFindings", nil},
		{"ListAgents", nil},
		{"TaskCreate", []any{"subject", huge, "description", huge}},
		{"TaskGet", []any{"taskId", huge}},
		{"TaskUpdate", []any{"taskId", huge}},
		{"TaskList", nil},
		{"CronCreate", []any{"cron", huge, "prompt", huge}},
		{"CronDelete", []any{"id", huge}},
		{"CronList", nil},
		{"ScheduleWakeup", []any{"delaySeconds", 1e300, "reason", huge, "prompt", huge}},
	} {
		to := byName[row.tool]
		if to == nil {
			t.Errorf("there is no tool %s", row.tool)
			continue
		}
		played[row.tool] = true
		input := tooltest.Input(t, row.pairs...)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := tooltest.Call(t.Context(), env, to, input)
		runtime.ReadMemStats(&after)
		grown, shown := after.TotalAlloc-before.TotalAlloc, len(r.Content.Text)
		for _, b := range r.Content.Blocks {
			if text, ok := b.(*wire.TextBlock); ok {
				shown += len(text.Text)
			}
		}
		if grown > 256<<20 {
			t.Errorf("%s %.200s: %d MB were allocated", row.tool, input, grown>>20)
		}
		// The model's own text may be repeated; beyond that there is a limit.
		if shown > len(input)+2<<20 {
			t.Errorf("%s %.200s: %d KB are shown", row.tool, input, shown>>10)
		}
	}
	for name := range byName {
		if !played[name] {
			t.Errorf("no row is about %s", name)
		}
	}
}
