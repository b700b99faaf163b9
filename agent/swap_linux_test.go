package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// swap exchanges two names, again and again, until the test calls the returned function,
// which reports how often it did.
func swap(t *testing.T, a, b string) (stop func() int) {
	t.Helper()
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	}
	if err := exchange(); err != nil {
		t.Skip("names cannot be exchanged here: ", err)
	}
	done, count := make(chan struct{}), make(chan int)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				count <- n
				return
			default:
				exchange()
			}
		}
	}()
	return func() int { close(done); return <-count }
}

// TestSwappedPaths makes the model use every file tool on a path below a directory that is
// constantly exchanged for a symbolic link: one that leads out of the workspace, and one that
// leads to protected files in it. Nothing is read or written through the link. The same calls
// all run before, while the directory stays, and none of them runs afterwards, while the link
// stays.
func TestSwappedPaths(t *testing.T) {
	rounds := 8
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		rounds = 150
	}
	notebook := `{"cells":[{"cell_type":"code","id":"c1","metadata":{},"outputs":[],"source":["harmless"]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("inside=%v", inside), func(t *testing.T) {
			t.Parallel()
			dir, _ := workdir(t)
			target := t.TempDir()
			if inside {
				target = filepath.Join(dir, ".git", "hooks")
			}
			for name, text := range map[string]string{"f": "harmless\n", "g": "harmless\n", "n.ipynb": notebook} {
				for _, d := range []string{filepath.Join(dir, "d"), target} {
					if err := os.MkdirAll(d, 0o777); err != nil {
						t.Fatal(err)
					}
					if d == target {
						text = strings.ReplaceAll(text, "harmless", "witness")
					}
					if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o666); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.Symlink(target, filepath.Join(dir, ".other")); err != nil {
				t.Fatal(err)
			}
			path := func(name string) string { return filepath.Join(dir, "d", name) }
			turn := func(i int) *parleytest.Turn {
				turn := &parleytest.Turn{}
				for _, call := range []struct {
					tool  string
					input map[string]any
				}{
					{"Read", map[string]any{"file_path": path("f")}},
					{"Read", map[string]any{"file_path": path("g")}},
					{"Read", map[string]any{"file_path": path("n.ipynb")}},
					{"Grep", map[string]any{"pattern": "w.tness", "path": filepath.Join(dir, "d"), "output_mode": "content"}},
					{"Grep", map[string]any{"pattern": "w.tness", "path": path("g"), "output_mode": "content"}},
					{"Glob", map[string]any{"pattern": "made-*", "path": filepath.Join(dir, "d")}},
					{"Write", map[string]any{"file_path": path("f"), "content": fmt.Sprintf("harmless %d\n", i)}},
					{"Write", map[string]any{"file_path": path(fmt.Sprintf("new-%d", i)), "content": "new\n"}},
					{"Write", map[string]any{"file_path": path(fmt.Sprintf("sub-%d/new", i)), "content": "new\n"}},
					{"Edit", map[string]any{"file_path": path("g"), "old_string": "\n", "new_string": "!\n"}},
					{"Edit", map[string]any{"file_path": path(fmt.Sprintf("edit-%d", i)), "old_string": "", "new_string": "new\n"}},
					{"NotebookEdit", map[string]any{"notebook_path": path("n.ipynb"), "cell_id": "c1", "new_source": "harmless"}},
				} {
					turn = turn.Call(call.tool, call.input)
				}
				return turn
			}
			// try plays the turns from one number to another, and returns how many calls ran.
			try := func(from, to int) int {
				var script []*parleytest.Turn
				for i := from; i < to; i++ {
					script = append(script, turn(i))
				}
				p := promptIn(t, dir, parleytest.Script(append(script, parleytest.Say("done"))...), func(o *parley.Options, _ *agent.Config) {
					o.PermissionMode = wire.ModeAcceptEdits
					o.Settings = json.RawMessage(`{"permissions":{"deny":["Read(.git/**)"]}}`)
				})
				for _, m := range p.all {
					if u, ok := m.(*wire.User); ok {
						if text, _ := wire.Encode(u); strings.Contains(string(text), "witness") {
							t.Errorf("the model sees a file behind the link: %.300s", text)
						}
					}
				}
				return strings.Count(outcomes(p), "ran")
			}
			if ran := try(0, 1); ran != 12 {
				t.Errorf("%d of 12 calls ran while nothing was exchanged", ran)
			}
			stop := swap(t, filepath.Join(dir, "d"), filepath.Join(dir, ".other"))
			ran, calls := 0, 0
			for i := 0; i < 10 && (ran == 0 || ran == calls); i++ {
				ran, calls = ran+try(1+i*rounds, 1+(i+1)*rounds), calls+12*rounds
			}
			t.Logf("%d swaps, %d of %d calls ran", stop(), ran, calls)
			if ran == 0 || ran == calls {
				t.Errorf("%d of %d calls ran: nothing was exchanged under them", ran, calls)
			}
			if info, err := os.Lstat(filepath.Join(dir, "d")); err != nil {
				t.Fatal(err)
			} else if info.IsDir() {
				if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "d"), unix.AT_FDCWD, filepath.Join(dir, ".other"), unix.RENAME_EXCHANGE); err != nil {
					t.Fatal(err)
				}
			}
			if ran := try(1+10*rounds, 2+10*rounds); ran != 0 {
				t.Errorf("%d calls ran although the directory was a link", ran)
			}
			entries, err := os.ReadDir(target)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				text, _ := os.ReadFile(filepath.Join(target, e.Name()))
				if !strings.Contains(string(text), "witness") || strings.Contains(string(text), "!") {
					t.Errorf("%s was written: %.40q", e.Name(), text)
				}
			}
		})
	}
}

// TestSwappedProject exchanges the .claude directory of a project for a link that leads out
// of it, while sessions start and read it: instructions, commands, skills, agents, the memory
// of an agent, and a file that the prompt mentions. The model sees all of them while the
// directory stays, and nothing from behind the link while it is exchanged or stays a link.
func TestSwappedProject(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	parts := map[string]string{
		"CLAUDE.md":                     "INSTRUCTIONS",
		"f":                             "MENTIONED",
		"commands/c.md":                 "COMMANDED @.claude/f $ARGUMENTS",
		"skills/fix/SKILL.md":           "---\nname: fix\ndescription: DESCRIBED\n---\nSKILLED",
		"agents/helper.md":              "---\nname: helper\ndescription: LISTED\nskills: fix\nmemory: project\n---\nYou help. AGENT",
		"agent-memory/helper/MEMORY.md": "REMEMBERED",
	}
	for name, text := range parts {
		write(t, filepath.Join(dir, ".claude", name), text)
		text = strings.NewReplacer("INSTRUCTIONS", "witness", "MENTIONED", "witness", "COMMANDED", "witness", "DESCRIBED", "witness", "SKILLED", "witness", "LISTED", "witness", "AGENT", "witness", "REMEMBERED", "witness").Replace(text)
		write(t, filepath.Join(target, name), text)
	}
	if err := os.Symlink(target, filepath.Join(dir, ".other")); err != nil {
		t.Fatal(err)
	}
	// try starts a session, and returns everything that its model saw.
	try := func() string {
		s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"p","subagent_type":"helper","run_in_background":false}`), parleytest.Say("done"))
		s.When("sub", parleytest.SystemPrompt("You help."), parleytest.Say("report"))
		m := s.Model()
		m.Record = true
		cfg := agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, SettingSources: []string{"project"}, Environ: []string{"PATH=" + os.Getenv("PATH")}}
		agent.Run(t.Context(), cfg, []string{"-p", "/c and @.claude/f"}, strings.NewReader(""), io.Discard, io.Discard)
		var all strings.Builder
		for _, r := range m.Requests() {
			all.Write(r.Body)
		}
		return all.String()
	}
	seen := try()
	for _, part := range []string{"INSTRUCTIONS", "MENTIONED", "COMMANDED", "DESCRIBED", "SKILLED", "LISTED", "AGENT", "REMEMBERED"} {
		if !strings.Contains(seen, part) {
			t.Errorf("the model does not see %s while nothing is exchanged", part)
		}
	}
	rounds := 10
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		rounds = 150
	}
	stop := swap(t, filepath.Join(dir, ".claude"), filepath.Join(dir, ".other"))
	for range rounds {
		if strings.Contains(try(), "witness") {
			t.Error("the model sees a file behind the link")
		}
	}
	t.Logf("%d swaps", stop())
	if info, err := os.Lstat(filepath.Join(dir, ".claude")); err == nil && info.IsDir() {
		if err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, ".claude"), unix.AT_FDCWD, filepath.Join(dir, ".other"), unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(try(), "witness") {
		t.Error("the model sees a file behind the link that stays")
	}
}

// TestAgentMemoryIsJudged makes the memory of an agent a link to a file that a rule hides.
func TestAgentMemoryIsJudged(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".env"), "witness")
	write(t, filepath.Join(dir, ".claude", "agents", "helper.md"), "---\nname: helper\ndescription: d\nmemory: project\n---\nYou help.")
	write(t, filepath.Join(dir, ".claude", "agent-memory", "helper", "other"), "")
	if err := os.Symlink("../../../.env", filepath.Join(dir, ".claude", "agent-memory", "helper", "MEMORY.md")); err != nil {
		t.Fatal(err)
	}
	for _, denied := range []bool{false, true} {
		s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"p","subagent_type":"helper","run_in_background":false}`), parleytest.Say("done"))
		shown := false
		s.When("sub", parleytest.SystemPrompt("You help."), parleytest.Expect(parleytest.Check("memory", func(r *parleytest.Request) error {
			shown = strings.Contains(string(r.Body), "witness")
			return nil
		})).Say("report"))
		flags := []string{"-p", "hello"}
		if denied {
			flags = append(flags, "--settings", `{"permissions":{"deny":["Read(.env)"]}}`)
		}
		cfg := agent.Config{Cwd: dir, Model: s.Model(), Store: &session.Memory{}, SettingSources: []string{"project"}, Environ: []string{"PATH=" + os.Getenv("PATH")}}
		agent.Run(t.Context(), cfg, flags, strings.NewReader(""), io.Discard, io.Discard)
		if shown == denied {
			t.Errorf("denied: %v, but the agent sees the file: %v", denied, shown)
		}
	}
}
