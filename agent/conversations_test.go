package agent_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"golang.org/x/tools/txtar"
)

// TestRecordedConversations plays recorded conversations with the official command against ours and
// compares what came: the order of lines, of the conversation, of its subagents and of answers to the host each
// by itself (they work at the same time) and without the events of streams and signs of life; and for each kind of line that the members
// which were there are there, with the same JSON kinds. The files have what the host and
// the model said, and of what the command wrote only this structure:
//
//	argv     the arguments
//	input    what standard input has, if it is no stream of lines
//	host     what the host writes or that it closes, and how many results and which line it waits for before; $TASK is the last task
//	answers  what it answers to requests, in order
//	model    the turns of the model, of subagents by their prompts, and the answer to who asks for a summary
//	no key   anything: there is no key, and no model
//	root     anything: the user is root and has no sandbox
//	virtual time  anything: time passes as fast as it can, and there is a tool Wait
//	exit     the exit status, if it is not 0
//	stderr   anything: standard error says why
//	stdout   what is written that is no line
//	lines    the kinds of lines that came
//	here     those that come here on purpose, behind a line with the reason
//	paths    their members and the JSON kinds of these
//	values   what some of them are, of each line
//
// Members that differ on purpose are in recordedApart.
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
			t.Parallel() // commands of some of them sleep
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "\n-- virtual time --\n") {
				synctest.Test(t, func(t *testing.T) { playRecorded(t, name, dir, data) })
				return
			}
			playRecorded(t, name, dir, data)
		})
	}
}

// recordedApart are members that are missing or of another kind on purpose: the name of the record or *, the kind of
// line or *, the member.
var recordedApart = []string{
	"* * message.context_management null",                 // only the API can provide it, and the script does not
	"22c-plan user_tool_result tool_use_result.plan null", // the plan is the text of the model
}

func playRecorded(t *testing.T, name, dir string, data []byte) {
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
	model := recordedModel(t, parts["model"]).Model()
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}, Model: model, Version: "2.1.325", Environ: []string{"PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1"}}
	if _, ok := parts["virtual time"]; ok {
		cfg.Tools = append(builtin.All(nil), &funcTool{"Wait", true, func(context.Context, *tool.Call) (*tool.Result, error) {
			time.Sleep(35 * time.Second)
			return tool.Text("waited", map[string]any{}), nil
		}})
	}
	if _, ok := parts["no key"]; ok {
		cfg.Model = nil
	}
	if _, ok := parts["root"]; ok {
		cfg.Root, cfg.Environ = true, cfg.Environ[:1]
	}
	a := start(t, cfg, argv)
	seen := &recordedLines{}
	seen.cond = sync.NewCond(&seen.mu)
	asked := map[string]string{} // what the host asks for
	for line := range strings.Lines(parts["host"]) {
		var h struct {
			Line struct {
				RequestID string `json:"request_id"`
				Request   struct{ Subtype string }
			}
		}
		json.Unmarshal([]byte(line), &h)
		asked[h.Line.RequestID] = h.Line.Request.Subtype
	}
	go func() {
		defer a.stdin.Close()
		io.WriteString(a.stdin, strings.TrimSuffix(parts["input"], "\n"))
		for line := range strings.Lines(parts["host"]) {
			var h struct {
				Results int `json:"after_results"`
				After   string
				Close   bool
				Line    json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &h); err != nil {
				t.Error(err)
				return
			}
			task := seen.await(h.Results, h.After)
			if h.Close {
				return
			}
			a.stdin.Write(append(bytes.ReplaceAll(h.Line, []byte("$TASK"), []byte(task)), '\n'))
		}
		seen.await(strings.Count(parts["lines"], "result/"), "")
	}()
	answers := slices.Collect(strings.Lines(parts["answers"]))
	var lines []string
	text := ""
	paths := map[string]map[string]bool{}
	messages := map[string][]map[string]any{}
	in := bufio.NewReader(a.stdout)
	for {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			text += string(raw)
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if json.Unmarshal(raw, &m) != nil {
			text += string(raw)
			continue
		}
		kind := recordedKind(m, asked)
		if m["type"] == "control_request" {
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
		}
		task, _ := m["task_id"].(string)
		seen.add(kind, task)
		if strings.HasPrefix(kind, "control_response initialize") {
			continue // TestRecordedMCP compares it
		}
		lines = append(lines, kind)
		messages[kind] = append(messages[kind], m)
		if paths[kind] == nil {
			paths[kind] = map[string]bool{}
		}
		addPaths(m, "", paths[kind])
	}
	if got, want := strings.TrimSpace(text), strings.TrimSpace(parts["stdout"]); got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
	exit, _ := strconv.Atoi(strings.TrimSpace(parts["exit"]))
	if code := a.wait(); code != exit {
		t.Errorf("exit status %d, want %d", code, exit)
	}
	if _, says := parts["stderr"]; says != (a.stderr.String() != "") {
		t.Errorf("standard error: %q", a.stderr.String())
	}
	if err := model.Done(); err != nil {
		t.Error(err)
	}
	want := strings.Split(strings.TrimSpace(parts["lines"]), "\n")
	if reason, here, ok := strings.Cut(parts["here"], "\n"); ok {
		if !strings.HasPrefix(reason, "# ") || slices.Equal(want, strings.Split(strings.TrimSpace(here), "\n")) {
			t.Errorf("%s: what differs here has no reason, or does not differ", name)
		}
		want = strings.Split(strings.TrimSpace(here), "\n")
	}
	of := map[string]func(kind string) bool{
		"the subagents":           func(kind string) bool { return strings.HasSuffix(kind, " sub") },
		"their progress":          func(kind string) bool { return kind == "system/task_progress" },
		"the answers to the host": func(kind string) bool { return strings.HasPrefix(kind, "control_response ") },
	}
	of["the conversation"] = func(kind string) bool {
		return kind != "" && kind != "stream_event" && kind != "keep_alive" && !of["the subagents"](kind) && !of["their progress"](kind) && !of["the answers to the host"](kind)
	}
	for lane, of := range of {
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
	for line := range strings.Lines(parts["values"]) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " | ")
		var want map[string]any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if len(messages[kind]) == 0 {
			continue // the order of lines says so
		}
		m := messages[kind][0]
		messages[kind] = messages[kind][1:]
		for path, want := range want {
			if got := recordedValue(m, path); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v, want %v", kind, path, got, want)
			}
		}
	}
}

// recordedValue returns the value at a path of members and indexes.
func recordedValue(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch of := v.(type) {
		case map[string]any:
			v = of[key]
		case []any:
			n, err := strconv.Atoi(key)
			if err != nil || n >= len(of) {
				return nil
			}
			v = of[n]
		default:
			return nil
		}
	}
	return v
}

// recordedLines are the lines that arrived, for a host that waits for them.
type recordedLines struct {
	mu    sync.Mutex
	cond  *sync.Cond
	kinds []string
	task  string
}

func (l *recordedLines) add(kind, task string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kinds = append(l.kinds, kind)
	if task != "" {
		l.task = task
	}
	l.cond.Broadcast()
}

// await waits for a number of results and for a line, and returns the last task. It waits forever if they do not come,
// which ends the test.
func (l *recordedLines) await(results int, kind string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		n := 0
		for _, k := range l.kinds {
			if strings.HasPrefix(k, "result/") {
				n++
			}
		}
		if n >= results && (kind == "" || slices.Contains(l.kinds, kind)) {
			return l.task
		}
		l.cond.Wait()
	}
}

// recordedKind returns the kind of a message.
func recordedKind(m map[string]any, asked map[string]string) string {
	kind := fmt.Sprint(m["type"])
	if r, ok := m["response"].(map[string]any); ok {
		id, _ := r["request_id"].(string)
		return fmt.Sprint(kind, " ", asked[id], " ", r["subtype"])
	}
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

// recordedModel returns the script of the model's answers.
func recordedModel(t *testing.T, text string) *parleytest.Scenario {
	type block struct {
		Text  string
		ID    string
		Name  string
		Input json.RawMessage
	}
	type turn struct { // or only its blocks
		Blocks  []block
		Stop    string
		Input   int
		Fail    int
		Message string
	}
	var said struct {
		Main    []json.RawMessage
		Summary *turn
		Subs    []struct {
			Prompt string
			Turns  []json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Fatal(err)
	}
	play := func(said *turn) *parleytest.Turn {
		if said.Fail != 0 {
			return parleytest.Fail(said.Fail, said.Message)
		}
		turn := parleytest.Expect()
		for _, b := range said.Blocks {
			if b.Name == "" {
				turn = turn.Say(b.Text)
			} else {
				turn = turn.CallID(b.ID, b.Name, b.Input)
			}
		}
		if said.Stop != "" {
			turn = turn.Stop(said.Stop)
		}
		return turn.Usage(parleytest.Usage{Input: cmp.Or(said.Input, 100), Output: 10})
	}
	turns := func(list []json.RawMessage) (all []*parleytest.Turn) {
		for _, raw := range list {
			var one turn
			if json.Unmarshal(raw, &one.Blocks) != nil {
				one.Blocks = nil
				if err := json.Unmarshal(raw, &one); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, play(&one))
		}
		return all
	}
	s := parleytest.Script(turns(said.Main)...)
	if said.Summary == nil {
		said.Summary = &turn{Blocks: []block{{Text: "<summary>S</summary>"}}}
	}
	s.When("summary", asksToSum, play(said.Summary).Always())
	for i, sub := range said.Subs {
		s.When(fmt.Sprint("sub", i), parleytest.FirstUser(sub.Prompt), turns(sub.Turns)...)
	}
	return s
}
