package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// repository returns a working directory with files in one commit, and one uncommitted file.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a POSIX shell")
	}
	dir, outside := workdir(t)
	t.Setenv("HOME", outside)
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "a@example.com")
	}
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q", "-b", "main")
	git("config", "user.email", "a@example.com")
	git("config", "user.name", "A")
	git("add", "a.txt", ".env")
	git("commit", "-q", "-m", "first")
	write(t, filepath.Join(dir, "new.txt"), "not committed\n")
	return dir, git
}

func call(name string, in map[string]any) *parleytest.Turn { return parleytest.Call(name, in) }

// results returns the results of the calls of a conversation, with their structured form.
func results(all []wire.Message) (texts []string, structured []map[string]any) {
	for _, m := range all {
		u, ok := m.(*wire.User)
		if !ok || u.ToolUseResult == nil {
			continue
		}
		for _, b := range u.Message.Content.Blocks {
			if r, ok := b.(*wire.ToolResultBlock); ok {
				texts = append(texts, r.Content.String())
			}
		}
		var s map[string]any
		json.Unmarshal(u.ToolUseResult, &s)
		structured = append(structured, s)
	}
	return texts, structured
}

// A conversation that enters a worktree works only on the committed files, cannot change anything
// outside, whatever the mode, and returns to its directory when it leaves.
func TestEnterWorktree(t *testing.T) {
	dir, git := repository(t)
	tree := filepath.Join(dir, ".claude", "worktrees", "fix")
	s := parleytest.Script(
		call("EnterWorktree", map[string]any{"name": "fix"}),
		call("Bash", map[string]any{"command": "pwd && ls && git rev-parse --abbrev-ref HEAD"}),
		call("Read", map[string]any{"file_path": filepath.Join(dir, "a.txt")}),
		call("Write", map[string]any{"file_path": filepath.Join(dir, "escaped"), "content": "x"}),
		call("Bash", map[string]any{"command": "echo x > " + filepath.Join(dir, "escaped")}),
		call("Bash", map[string]any{"command": "cat ../../../new.txt"}),
		call("Write", map[string]any{"file_path": filepath.Join(filepath.Dir(dir), "outside", "escaped"), "content": "x"}),
		call("Read", map[string]any{"file_path": filepath.Join(tree, ".env")}),
		call("Grep", map[string]any{"pattern": "hush", "output_mode": "content"}),
		call("Write", map[string]any{"file_path": "b.txt", "content": "made here\n"}),
		call("Read", map[string]any{"file_path": "b.txt"}),
		call("EnterWorktree", map[string]any{"name": "other"}),
		call("ExitWorktree", map[string]any{"action": "remove"}),
		call("Bash", map[string]any{"command": "git add -A && git commit -qm b && git log --oneline | wc -l"}),
		call("ExitWorktree", map[string]any{"action": "remove"}),
		call("ExitWorktree", map[string]any{"action": "remove", "discard_changes": true}),
		call("Bash", map[string]any{"command": "pwd"}),
		call("ExitWorktree", map[string]any{"action": "keep"}),
		parleytest.Say("done"))
	got := say(t, agent.Config{Cwd: dir, Model: s.Model(), Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}},
		[]string{"--permission-mode", "bypassPermissions", "--settings", `{"permissions":{"deny":["Read(.env)"]}}`}, hello)
	texts, structured := results(got.all)
	if len(texts) != 18 {
		t.Fatalf("%d results: %q", len(texts), texts)
	}
	for i, want := range []string{
		"Made the worktree " + tree, tree + "\na.txt\nworktree-fix", "outside the worktree", "outside the worktree", "outside the worktree", "outside the worktree", "outside the worktree",
		"denied by the rule Read(.env)", "No matches", "", "made here", "Leave it with ExitWorktree first", "1 files that are not committed and 0 commits", "2", "0 files that are not committed and 1 commits",
		"0 files and 1 commits were discarded", dir, "has not entered a worktree",
	} {
		if !strings.Contains(texts[i], want) {
			t.Errorf("result %d is %q, want %q", i, texts[i], want)
		}
	}
	if want := fmt.Sprint(tree, "worktree-fix"); fmt.Sprint(structured[0]["worktreePath"], structured[0]["worktreeBranch"]) != want {
		t.Errorf("EnterWorktree returns %v", structured[0])
	}
	if left := structured[15]; left["action"] != "remove" || left["originalCwd"] != dir || left["worktreePath"] != tree || left["discardedCommits"] != float64(1) || left["restoredCwd"] != dir {
		t.Errorf("ExitWorktree returns %v", left)
	}
	for _, path := range []string{filepath.Join(dir, "escaped"), filepath.Join(filepath.Dir(dir), "outside", "escaped"), tree, filepath.Join(dir, "b.txt")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s exists", path)
		}
	}
	if out := git("branch"); strings.Contains(out, "worktree-") {
		t.Errorf("branches: %s", out)
	}
}

// Edits in a worktree need no more permission than elsewhere, although its path leads through
// .claude; what is protected in it stays protected.
func TestWorktreeEditsAreAccepted(t *testing.T) {
	dir, _ := repository(t)
	s := parleytest.Script(
		call("Write", map[string]any{"file_path": "b.txt", "content": "x"}),
		call("Write", map[string]any{"file_path": ".claude/settings.json", "content": "{}"}),
		parleytest.Say("done"))
	got := say(t, agent.Config{Cwd: dir, Model: s.Model(), Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH")}},
		[]string{"--permission-mode", "acceptEdits", "--worktree", "foo"}, hello)
	tree := filepath.Join(dir, ".claude", "worktrees", "foo")
	if got.init == nil || got.init.Cwd != tree {
		t.Fatalf("init says %+v, standard error %s", got.init, got.stderr)
	}
	if _, err := os.Stat(filepath.Join(tree, "b.txt")); err != nil {
		t.Error(err)
	}
	if len(got.result.PermissionDenials) != 1 {
		t.Errorf("denials: %+v", got.result.PermissionDenials)
	}
}

// A worktree without changes is removed with the conversation, another one stays, and a resumed
// session works in it again, or the model learns that it is gone.
func TestWorktreeAtTheEnd(t *testing.T) {
	dir, git := repository(t)
	tree := filepath.Join(dir, ".claude", "worktrees", "foo")
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}}
	play := func(s *parleytest.Scenario, args ...string) told {
		t.Helper()
		m := s.Model()
		cfg.Model = m
		got := say(t, cfg, append(args, "--permission-mode", "bypassPermissions"), hello)
		if got.result == nil || got.result.IsError || m.Done() != nil {
			t.Fatalf("result %+v, standard error %s, %v", got.result, got.stderr, m.Done())
		}
		return got
	}
	play(parleytest.Script(parleytest.Say("nothing")), "--worktree", "foo")
	if _, err := os.Stat(tree); err == nil {
		t.Error("a clean worktree stays")
	}
	first := play(parleytest.Script(call("Bash", map[string]any{"command": "echo x > kept"}), parleytest.Say("done")), "--worktree=foo")
	if _, err := os.Stat(filepath.Join(tree, "kept")); err != nil {
		t.Fatal("a worktree with a change is gone")
	}
	again := play(parleytest.Script(call("Bash", map[string]any{"command": "pwd; rm kept"}), parleytest.Say("done")), "--resume", first.result.SessionID)
	if texts, _ := results(again.all); len(texts) != 1 || !strings.Contains(texts[0], tree) || again.init.Cwd != tree {
		t.Errorf("the session goes on in %q, init says %s", texts, again.init.Cwd)
	}
	if _, err := os.Stat(tree); err == nil {
		t.Error("the worktree stays although its change is gone")
	}
	last := play(parleytest.Script(parleytest.Expect(anywhere("does not exist any more")).Say("ok")), "--resume", first.result.SessionID)
	if last.init.Cwd != dir {
		t.Errorf("the session goes on in %s", last.init.Cwd)
	}
	if out := git("worktree", "list"); strings.Contains(out, "foo") {
		t.Error(out)
	}
	cfg.Model = parleytest.Script().Model()
	for _, name := range []string{"../x", ".git", "-x", "a b"} {
		if got := say(t, cfg, []string{"--worktree=" + name}, hello); got.code == 0 || !strings.Contains(got.stderr, "not a name for a worktree") {
			t.Errorf("%q: status %d, %s", name, got.code, got.stderr)
		}
	}
}

// A subagent with its own worktree works on a copy; the copy stays if it contains a change.
func TestSubagentInWorktree(t *testing.T) {
	for _, tt := range []struct {
		name, input, agent, command string
		stays                       bool
	}{
		{"clean", `{"description":"d","prompt":"SUB","run_in_background":false,"isolation":"worktree"}`, "", "pwd && ls", false},
		{"changed", `{"description":"d","prompt":"SUB","run_in_background":false,"isolation":"worktree"}`, "", "echo x > sub.txt && pwd && ls", true},
		{"by its definition", `{"description":"d","prompt":"SUB","run_in_background":false,"subagent_type":"iso"}`, "iso", "pwd && ls", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, git := repository(t)
			if tt.agent != "" {
				write(t, filepath.Join(dir, ".claude", "agents", "iso.md"), "---\nname: iso\ndescription: d\nisolation: worktree\n---\nYou help.")
			}
			s := parleytest.Script(parleytest.Call("Agent", tt.input), parleytest.Say("main"))
			s.When("sub", parleytest.FirstUser("SUB"),
				parleytest.Expect(anywhere(filepath.Join(".claude", "worktrees", "agent-"))).Call("Bash", map[string]any{"command": tt.command}),
				parleytest.Expect(parleytest.ToolResult("a.txt")).Call("Write", map[string]any{"file_path": filepath.Join(dir, "escaped"), "content": "x"}),
				parleytest.Expect(parleytest.ToolResult("outside the worktree")).Say("report"))
			m := s.Model()
			got := say(t, agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, SettingSources: []string{"project"}, Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}},
				[]string{"--permission-mode", "bypassPermissions"}, hello)
			if err := m.Done(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "escaped")); err == nil {
				t.Error("the subagent wrote outside of its worktree")
			}
			_, structured := results(got.all)
			out := structured[len(structured)-1]
			path, _ := out["worktreePath"].(string)
			if (path != "") != tt.stays || tt.stays && out["worktreeBranch"] != "worktree-"+filepath.Base(path) {
				t.Errorf("the call returns %v", out)
			}
			if listed := strings.Count(git("worktree", "list"), "\n"); (listed == 2) != tt.stays {
				t.Errorf("%d worktrees", listed)
			}
			if tt.stays {
				if _, err := os.Stat(filepath.Join(path, "sub.txt")); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "sub.txt")); err == nil {
				t.Error("the change is in the main worktree")
			}
		})
	}
}

// WorktreeCreate hooks create worktrees instead of git, and WorktreeRemove hooks remove those. A
// hook that fails, or names a directory of the repository, creates none.
func TestWorktreeHooks(t *testing.T) {
	for _, tt := range []struct {
		name, create, want string
	}{
		{"made", `d="$(mktemp -d)" && cat > "$d/input" && cp "$d/input" "$CLAUDE_PROJECT_DIR/created" && echo "$d"`, "Made the worktree"},
		{"failed", `exit 1`, "the WorktreeCreate hook failed"},
		{"nothing", `true`, "returned no path"},
		{"inside of the repository", `mkdir -p "$CLAUDE_PROJECT_DIR/sub" && echo "$CLAUDE_PROJECT_DIR/sub"`, "git works on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, git := repository(t)
			hooks, err := json.Marshal(map[string]any{"hooks": map[string]any{
				"WorktreeCreate": []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": tt.create}}}},
				"WorktreeRemove": []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": `cat > "$CLAUDE_PROJECT_DIR/removed"`}}}}}})
			if err != nil {
				t.Fatal(err)
			}
			s := parleytest.Script(
				call("EnterWorktree", map[string]any{"name": "fix"}),
				call("ExitWorktree", map[string]any{"action": "remove", "discard_changes": true}), parleytest.Say("done"))
			got := say(t, agent.Config{Cwd: dir, Model: s.Model(), Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH")}}, []string{"--settings", string(hooks)}, hello)
			texts, structured := results(got.all)
			if len(texts) == 0 || !strings.Contains(texts[0], tt.want) {
				t.Fatalf("results %q, want %q", texts, tt.want)
			}
			if out := git("worktree", "list"); strings.Count(out, "\n") != 1 {
				t.Errorf("git made a worktree, too: %s", out)
			}
			if tt.name != "made" {
				return
			}
			for file, want := range map[string]string{"created": `"name":"fix"`, "removed": `"worktree_path":"` + structured[0]["worktreePath"].(string)} {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "permission_mode") {
					t.Errorf("%s: %v %s", file, err, text)
				}
			}
		})
	}
}
