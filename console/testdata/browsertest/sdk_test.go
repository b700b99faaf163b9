package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// peersDir returns where scripts/peers installs the official peers.
func peersDir() string {
	if dir := os.Getenv("PARLEY_PEERS"); dir != "" {
		return dir
	}
	dir, _ := os.UserCacheDir()
	return filepath.Join(dir, "parley-peers")
}

// A page of another origin drives a session with the browser export of the official
// TypeScript SDK, unchanged and without a bundler, over both of its transports.
func TestOfficialSDK(t *testing.T) {
	modules := filepath.Join(peersDir(), "node_modules")
	if _, err := os.Stat(filepath.Join(modules, "@anthropic-ai/claude-agent-sdk/browser-sdk.js")); err != nil {
		t.Skipf("the official SDK is not installed, scripts/peers does: %v", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/modules/", http.StripPrefix("/modules/", http.FileServer(http.Dir(modules))))
	mux.HandleFunc("/drive.js", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/javascript") // the name of the file ends in .mjs
		http.ServeFile(w, r, "../../../interop/ts/browser.mjs")
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `<!doctype html><title>SDK</title><link rel="icon" href="data:,"><script>var process = {env: {}}</script>`)
	})
	site := httptest.NewServer(mux)
	defer site.Close()
	for _, transport := range []string{"websocket", "sse"} {
		t.Run(transport, func(t *testing.T) {
			r := newRigWith(t, func(c *serve.Config) { c.Origins = []string{site.URL} },
				parleytest.Expect(parleytest.LastUser("one")).Say("I write.").Call("Write", map[string]string{"file_path": "a", "content": "x"}).Call("Bash", map[string]string{"command": "touch b"}),
				parleytest.Expect(parleytest.ToolResult("")).Say("First."),
				parleytest.Expect(parleytest.LastUser("two")).Call("mcp__mine__double", map[string]int{"n": 21}),
				parleytest.Expect(parleytest.ToolResult("42")).Say("Second."),
				parleytest.Expect(parleytest.LastUser("three")).Say("Third."),
			)
			s := r.create("SDK", "")
			_, token, _ := strings.Cut(r.link(serve.ScopeDrive), "#t=")
			p := open(t, site.URL)
			eval[any](p, fmt.Sprintf(`void Promise.all([import('/drive.js'), import('/modules/@anthropic-ai/claude-agent-sdk/browser-sdk.js'), import('/modules/zod/index.js')])
				.then(([d, sdk, {z}]) => d.drive(sdk, z, %q, %q, %q, %q)).then(s => { window.seen = JSON.stringify(s); }, e => { window.seen = String(e.stack ?? e); })`, transport, r.url, s.ID(), token))
			p.until("window.seen")
			out := eval[string](p, "window.seen")
			var got struct {
				Asked, Hooks, Results, Again []string
				Tool                         []int
				Deltas                       int
				Model                        bool
				Drops                        map[string]int
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(out)
			}
			results := []string{"First.", "Second.", "Third."}
			if transport == "websocket" {
				results = results[:2]
			}
			tools := []string{"Write", "Bash", "mcp__mine__double"}
			if !slices.Equal(got.Results, results) || !slices.Equal(got.Asked, tools) || !slices.Equal(got.Hooks, tools) || !slices.Equal(got.Tool, []int{21}) || got.Deltas == 0 || !got.Model || len(got.Drops) > 0 {
				t.Errorf("it saw %s", out)
			}
			if i := slices.Index(got.Again, "result"); i >= 0 && i != len(got.Again)-1 {
				t.Errorf("after resuming it saw %q", got.Again)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "a")); err != nil {
				t.Error("what was allowed did not run")
			}
			if _, err := os.Stat(filepath.Join(r.dir, "b")); err == nil {
				t.Error("what was denied ran")
			}
		})
	}
}
