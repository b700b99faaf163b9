package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"golang.org/x/tools/txtar"
)

// TestRecordedConversations plays recorded conversations with the official command against ours and
// compares what came: the order of lines, of the conversation and of its subagents each
// by itself (they work at the same time) and without the events of streams; and for each kind of line that the members
// which were there are there, with the same JSON kinds. The files have what the host and
// the model said, and of what the command wrote only this structure:
//
//	argv     the arguments
//	host     what the host writes, and how many results it waits for before
//	answers  what it answers to requests, in order
//	model    the turns of the model, and of subagents by their prompts
//	lines    the kinds of lines that came
//	paths    their members and the JSON kinds of these
//
// What differs on purpose is in recordedApart. Plan mode is not among them: there a call
// with effects is asked about, here it is refused.
func TestRecordedConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("nothing is recorded", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(name, "bash") {
				t.Skip("there may be no Bash")
			}
			playRecorded(t, name, file)
		})
	}
}

// recordedApart are members that are not there, or are of another kind, on purpose: the
// name of the record or *, the kind of line or *, the member.
var recordedApart = []string{
	"* * message.context_management null", // it is the API's to tell, and the script does not
}

func playRecorded(t *testing.T, name, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for _, f := range txtar.Parse(data).Files {
		parts[f.Name] = strings.ReplaceAll(string(f.Data), "$DIR", filepath.ToSlash(dir))
	}
	var argv []string
	if err := json.Unmarshal([]byte(parts["argv"]), &argv); err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Model: recordedModel(t, parts["model"]).Model(), Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}}
	a := start(t, cfg, argv)
	results := make(chan struct{}, 100)
	go func() {
		defer a.stdin.Close()
		seen := 0
		for line := range strings.Lines(parts["host"]) {
			var h struct {
				After int `json:"after_results"`
				Line  json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &h); err != nil {
				t.Error(err)
				return
			}
			for ; seen < h.After; seen++ {
				<-results
			}
			a.stdin.Write(append(h.Line, '\n'))
		}
		for ; seen < strings.Count(parts["lines"], "result/"); seen++ {
			<-results
		}
	}()
	answers := slices.Collect(strings.Lines(parts["answers"]))
	var lines []string
	paths := map[string]map[string]bool{}
	in := bufio.NewReader(a.stdout)
	for {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		switch m["type"] {
		case "control_request":
			if len(answers) == 0 {
				t.Errorf("it asks %s", raw)
				go a.cancel(nil)
				continue
			}
			var r map[string]any
			json.Unmarshal([]byte(answers[0]), &r)
			answers, r["request_id"] = answers[1:], m["request_id"]
			go func() {
				text, _ := json.Marshal(map[string]any{"type": "control_response", "response": r})
				a.stdin.Write(append(text, '\n'))
			}()
		case "result":
			results <- struct{}{}
		case "control_response":
			continue
		}
		kind := recordedKind(m)
		lines = append(lines, kind)
		if paths[kind] == nil {
			paths[kind] = map[string]bool{}
		}
		addPaths(m, "", paths[kind])
	}
	want := strings.Split(strings.TrimSpace(parts["lines"]), "\n")
	for lane, of := range map[string]func(kind string) bool{
		"the conversation": func(kind string) bool {
			return !strings.HasSuffix(kind, " sub") && kind != "system/task_progress" && kind != "stream_event"
		},
		"the subagents":  func(kind string) bool { return strings.HasSuffix(kind, " sub") },
		"their progress": func(kind string) bool { return kind == "system/task_progress" },
	} {
		not := func(kind string) bool { return !of(kind) }
		got, want := slices.DeleteFunc(slices.Clone(lines), not), slices.DeleteFunc(slices.Clone(want), not)
		if !slices.Equal(got, want) {
			t.Errorf("the lines of %s are\n%s\nwant\n%s", lane, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for line := range strings.Lines(parts["paths"]) {
		kind, members, _ := strings.Cut(strings.TrimSpace(line), " | ")
		for member := range strings.SplitSeq(members, ", ") {
			apart := func(s string) bool {
				f := strings.SplitN(s, " ", 3)
				return (f[0] == "*" || f[0] == name) && (f[1] == "*" || f[1] == strings.ReplaceAll(kind, " ", "_")) && f[2] == member
			}
			if paths[kind] != nil && !paths[kind][member] && !slices.ContainsFunc(recordedApart, apart) {
				t.Errorf("%s has no %s", kind, member)
			}
		}
	}
}

// recordedKind names what kind of line a message is.
func recordedKind(m map[string]any) string {
	kind := fmt.Sprint(m["type"])
	if s, ok := m["subtype"].(string); ok {
		kind += "/" + s
	}
	if r, ok := m["request"].(map[string]any); ok {
		kind += fmt.Sprint(" ", r["subtype"])
	}
	if kind != "assistant" && kind != "user" {
		return kind
	}
	switch content := m["message"].(map[string]any)["content"].(type) {
	case string:
		kind += " string"
	case []any:
		var types []string
		for _, b := range content {
			b := b.(map[string]any)
			typ := fmt.Sprint(b["type"])
			if b["is_error"] == true {
				typ += " error"
			}
			types = append(types, typ)
		}
		kind += " " + strings.Join(types, "+")
	}
	if m["parent_tool_use_id"] != nil {
		kind += " sub"
	}
	return kind
}

// addPaths adds the members of a value with their kinds.
func addPaths(v any, at string, all map[string]bool) {
	kind := "null"
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for k, m := range v {
			addPaths(m, strings.TrimPrefix(at+"."+k, "."), all)
		}
	case []any:
		kind = "array"
		for _, m := range v {
			addPaths(m, at+"[]", all)
		}
	case string:
		kind = "string"
	case bool:
		kind = "bool"
	case float64:
		kind = "number"
	}
	all[at+" "+kind] = true
}

// recordedModel is the script of what the model said.
func recordedModel(t *testing.T, text string) *parleytest.Scenario {
	type block struct {
		Text  string
		ID    string
		Name  string
		Input json.RawMessage
	}
	var said struct {
		Main [][]block
		Subs []struct {
			Prompt string
			Turns  [][]block
		}
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	turns := func(list [][]block) (all []*parleytest.Turn) {
		for _, blocks := range list {
			turn := parleytest.Expect()
			for _, b := range blocks {
				if b.Name == "" {
					turn = turn.Say(b.Text)
				} else {
					turn = turn.CallID(b.ID, b.Name, b.Input)
				}
			}
			all = append(all, turn.Usage(parleytest.Usage{Input: 100, Output: 10}))
		}
		return all
	}
	s := parleytest.Script(turns(said.Main)...)
	s.When("summary", asksToSum, parleytest.Say("<summary>S</summary>").Always())
	for i, sub := range said.Subs {
		s.When(fmt.Sprint("sub", i), parleytest.FirstUser(sub.Prompt), turns(sub.Turns)...)
	}
	return s
}
