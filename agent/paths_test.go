package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// pathMembers are the members of the built-in tools' inputs that hold paths.
var pathMembers = map[string]string{"Read": "file_path", "Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path", "Glob": "path", "Grep": "path"}

// TestPathMembersAreKnown checks that a built-in tool with a new member for a path has a row in
// pathMembers, and makes that path absolute.
func TestPathMembersAreKnown(t *testing.T) {
	env := &tool.Env{Roots: []string{"/w/d"}, Home: "/h"}
	for _, tl := range builtin.All(nil) {
		spec := tl.Spec()
		var schema struct {
			Properties map[string]struct{ Type any }
		}
		if err := json.Unmarshal(spec.Schema, &schema); err != nil {
			t.Fatal(err)
		}
		for name := range schema.Properties {
			if low := strings.ToLower(name); !strings.Contains(low, "path") && !strings.Contains(low, "dir") && !strings.Contains(low, "file") {
				continue
			}
			if pathMembers[spec.Name] != name {
				t.Errorf("%s has the member %s, which is no known path", spec.Name, name)
				continue
			}
			p, ok := tl.(tool.PathTool)
			if !ok {
				t.Errorf("%s does not make its paths absolute", spec.Name)
				continue
			}
			for given, want := range map[string]string{"x": "/w/d/x", "../x": "/w/x", "~/x": "/h/x", "~": "/h", "a/../b": "/w/d/b", "link/../x": "/w/d/x", "b/": "/w/d/b", "/a//b/./c/": "/a/b/c",
				"~root/x": "/w/d/~root/x", "../../../../etc": "/etc", "/": "/", " y ": "/w/d/y"} {
				input := mustMarshal(t, map[string]any{name: given, "pattern": "p", "zzz": []int{1}})
				got, err := p.Absolute(env, input)
				var m map[string]any
				if err == nil {
					err = json.Unmarshal(got, &m)
				}
				if err != nil || m[name] != want || m["pattern"] != "p" || fmt.Sprint(m["zzz"]) != "[1]" {
					t.Errorf("%s with %q: got %s, %v; want %s", spec.Name, given, got, err, want)
				}
				if again, err := p.Absolute(env, got); err != nil || string(again) != string(got) {
					t.Errorf("%s: %s becomes %s, %v", spec.Name, got, again, err)
				}
			}
		}
	}
}

// TestGlobPatternsStayBelowTheirPath checks that a pattern that leads elsewhere is absolute,
// and so is the path that hosts decide about.
func TestGlobPatternsStayBelowTheirPath(t *testing.T) {
	env := &tool.Env{Roots: []string{"/w/d"}, Home: "/h[1]"}
	for given, want := range map[string]string{
		`{"pattern":"*.go"}`:                             `{"pattern":"*.go"}`,
		`{"pattern":"a/*.go"}`:                           `{"pattern":"a/*.go"}`,
		`{"pattern":"a/*/../*.go"}`:                      `{"pattern":"a/*/../*.go"}`, // which finds nothing
		`{"pattern":"../*.go"}`:                          `{"pattern":"/w/*.go","path":"/w"}`,
		`{"pattern":"../../e/*","path":"s"}`:             `{"pattern":"/w/e/*","path":"/w/e"}`,
		`{"pattern":"~/*.go"}`:                           `{"pattern":"/h\\[1\\]/*.go","path":"/h[1]"}`,
		`{"path":"/w/d","pattern":"/etc/../x/**"}`:       `{"path":"/x","pattern":"/x/**"}`,
		`{"path":"undefined","pattern":"*"}`:             `{"path":"/w/d","pattern":"*"}`,
		`{"path":"~/a/..","pattern":"/**/*.pem"}`:        `{"path":"/","pattern":"/**/*.pem"}`,
		`{"path":"\ud83d\ude00", "pattern" : "a\/../*"}`: `{"path":"/w/d/😀", "pattern" : "/w/d/😀/*"}`,
	} {
		p := glob.New()
		got, err := p.Absolute(env, json.RawMessage(given))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s, %v; want %s", given, got, err, want)
		}
		if again, err := p.Absolute(env, got); err != nil || string(again) != want {
			t.Errorf("%s becomes %s, %v", want, again, err)
		}
		before, _ := p.Access(env, json.RawMessage(given))
		if after, _ := p.Access(env, got); before[0] != after[0] {
			t.Errorf("%s: access is to %v, then to %v", given, before, after)
		}
	}
}

// TestHostSeesAbsolutePaths checks that whatever the spelling of a path, the host and every
// hook see the same absolute path, in the conversation and in a subagent, and that the tool
// opens that one.
func TestHostSeesAbsolutePaths(t *testing.T) {
	inputs := map[string]map[string]any{ // without their path
		"Read":         {},
		"Write":        {"content": "written"},
		"Edit":         {"old_string": "old", "new_string": "written"},
		"NotebookEdit": {"cell_id": "c1", "new_source": "written"},
		"Glob":         {"pattern": "x*"},
		"Grep":         {"pattern": "old", "output_mode": "content"},
	}
	files := map[string]string{"Read": "x.txt", "Write": "new.txt", "Edit": "x.txt", "NotebookEdit": "n.ipynb"}
	spellings := []struct{ given, want string }{ // of a directory
		{"../out", "out"}, {"~", "home"}, {"sub/../../out", "out"}, {"link/..", "work"}, {"./sub/", "work/sub"}, {"../work/link/../sub//", "work/sub"},
	}
	for name := range inputs {
		for _, sp := range spellings {
			for _, who := range []string{"conversation", "subagent"} {
				for _, answer := range []string{"allow", "deny", "hook denies", "hook changes", "host changes", "stop"} {
					if answer == "stop" && who == "subagent" {
						continue // then no turn is left
					}
					if (answer != "allow" || who == "subagent") && sp.given != "link/.." {
						continue // the spelling makes no difference there
					}
					given, member := maps.Clone(inputs[name]), pathMembers[name]
					given[member] = sp.given
					if files[name] != "" {
						given[member] = sp.given + "/" + files[name]
					}
					t.Run(strings.ReplaceAll(fmt.Sprint(name, " ", sp.given, " ", who, " ", answer), "/", ":"), func(t *testing.T) {
						t.Parallel()
						checkPath(t, name, given, filepath.Join(sp.want, files[name]), filepath.Join("work/sub", files[name]), who, answer)
					})
				}
			}
		}
	}
}

// checkPath plays a call. The host sees the path want, or other after a change.
func checkPath(t *testing.T, name string, given map[string]any, want, other, who, answer string) {
	base := pathsFixture(t)
	first, last, member := filepath.Join(base, want), filepath.Join(base, want), pathMembers[name]
	changed := maps.Clone(given)
	changed[member] = "sub/../../" + other
	if strings.HasSuffix(answer, " changes") {
		last = filepath.Join(base, other)
	}
	calls := []*parleytest.Turn{new(parleytest.Turn).CallID("toolu_it", name, given), parleytest.Say("done")}
	if name == "Edit" || name == "NotebookEdit" { // they need a file that was read
		calls = slices.Insert(calls, 0, new(parleytest.Turn).CallID("toolu_read", "Read", map[string]any{"file_path": first}).
			CallID("toolu_other", "Read", map[string]any{"file_path": last}))
	}
	if answer == "stop" {
		calls = calls[:len(calls)-1]
	}
	s := parleytest.Script(calls...)
	if who == "subagent" {
		s = parleytest.Script(launch(false), parleytest.Say("done"))
		s.When("sub", parleytest.FirstUser("P1"), calls...)
	}
	var mu sync.Mutex
	seen := map[string]string{}
	see := func(id, where string, input json.RawMessage) bool {
		var m map[string]any
		if id != "toolu_it" || json.Unmarshal(input, &m) != nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		seen[where] = fmt.Sprint(m[member])
		return true
	}
	hook := func(_ context.Context, in wire.HookInput) (*wire.HookOutput, error) {
		switch in := in.(type) {
		case *wire.PreToolUseInput:
			o := &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAsk}
			switch {
			case !see(in.ToolUseID, "PreToolUse", in.ToolInput):
				return parley.HookAllow(), nil
			case answer == "hook denies":
				return parley.HookDeny("no"), nil
			case answer == "hook changes":
				o.UpdatedInput = mustMarshal(t, changed)
			}
			return &wire.HookOutput{HookSpecificOutput: o}, nil
		case *wire.PostToolUseInput:
			see(in.ToolUseID, "PostToolUse", in.ToolInput)
		case *wire.PostToolUseFailureInput:
			see(in.ToolUseID, "PostToolUseFailure", in.ToolInput)
		case *wire.PermissionRequestInput:
			see("toolu_it", "PermissionRequest", in.ToolInput)
		case *wire.PostToolBatchInput:
			for _, c := range in.ToolCalls {
				see(c.ToolUseID, "PostToolBatch", c.ToolInput)
			}
		}
		return nil, nil
	}
	p := promptIn(t, filepath.Join(base, "work"), s, func(o *parley.Options, c *agent.Config) {
		c.Home = filepath.Join(base, "home")
		for _, e := range []wire.HookEvent{wire.EventPreToolUse, wire.EventPostToolUse, wire.EventPostToolUseFailure, wire.EventPermissionRequest, wire.EventPostToolBatch} {
			o.Hooks = append(o.Hooks, parley.OnEvent(e, "", hook))
		}
		o.CanUseTool = func(_ context.Context, q *wire.CanUseTool) (*wire.PermissionResult, error) {
			see(q.ToolUseID, "canUseTool", q.Input)
			switch answer {
			case "deny":
				return parley.Deny("no"), nil
			case "stop":
				return parley.DenyAndStop("no"), nil
			case "host changes":
				return parley.AllowInput(changed), nil
			}
			return parley.Allow(), nil
		}
	})
	for _, d := range p.r.PermissionDenials {
		see(d.ToolUseID, "permission_denials", d.ToolInput)
	}
	wanted := map[string]string{"PreToolUse": first, "canUseTool": last, "PermissionRequest": last, "PostToolUse": last, "PostToolBatch": last}
	switch answer {
	case "hook denies":
		wanted = map[string]string{"PreToolUse": first, "permission_denials": last, "PostToolBatch": last}
	case "deny":
		wanted["permission_denials"] = last
		delete(wanted, "PostToolUse")
	case "stop":
		wanted = map[string]string{"PreToolUse": first, "canUseTool": last, "PermissionRequest": last, "permission_denials": last}
	case "host changes":
		wanted["canUseTool"], wanted["PermissionRequest"] = first, first
	}
	if p.r.PermissionDenials != nil && seen["PermissionRequest"] == "" {
		delete(wanted, "PermissionRequest") // the host's denial came first
	}
	if !maps.Equal(seen, wanted) {
		t.Errorf("the host saw %v, want %v", seen, wanted)
	}
	_, ran := wanted["PostToolUse"]
	switch name {
	case "Write", "Edit", "NotebookEdit":
		if data, _ := os.ReadFile(last); strings.Contains(string(data), "written") != ran {
			t.Errorf("%s holds %q", last, data)
		}
	case "Read", "Grep":
		dir := filepath.Dir(last)
		if name == "Grep" {
			dir = last
		}
		found := slices.ContainsFunc(p.model.Requests(), func(r *parleytest.Request) bool { return strings.Contains(string(r.Body), "old "+dir) })
		if found != ran {
			t.Errorf("the result is of %s: %v, want %v", dir, found, ran)
		}
	}
}

// pathsFixture creates directories with files in them. On disk, work/link/.. is else.
func pathsFixture(t *testing.T) (base string) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"work", "work/sub", "out", "home", "else", "else/where"} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"x.txt": "old " + dir + "\n",
			"n.ipynb": `{"cells":[{"cell_type":"code","id":"c1","metadata":{},"source":"o","outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}`} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Symlink(filepath.Join(base, "else/where"), filepath.Join(base, "work/link")); err != nil {
		t.Skip(err)
	}
	return base
}
