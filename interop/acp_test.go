package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"golang.org/x/tools/txtar"
)

// An acpFrame is a message of the Agent Client Protocol.
type acpFrame struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// An acpClient plays the steps of a scenario against an agent.
type acpClient struct {
	in      chan *acpFrame
	out     io.Writer
	dir     string
	session string
	id      int
	open    map[string]string // methods of requests without a response, by id
	permit  string            // the kind of option to select
	answer  json.RawMessage   // to elicitations
	seen    []any             // frames to compare
}

// besides answers the requests that the official CLI sends beside the conversation.
const besides = `
script beside
when user ~ SUGGESTION MODE|^<session>
turn
  say Beside.
  always
`

// playACP plays a scenario and returns the agent's output, without what varies between
// runs.
func playACP(ctx context.Context, ar *txtar.Archive, dir, home string, env, command []string) ([]any, error) {
	sections := map[string]string{}
	for _, f := range ar.Files {
		if name, ok := strings.CutPrefix(f.Name, "files/"); ok {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(path, f.Data, 0o644); err != nil {
				return nil, err
			}
			continue
		}
		sections[f.Name] = strings.ReplaceAll(string(f.Data), "$DIR", dir)
	}
	scenario, err := pt.ParseScript("script", []byte(sections["script"]+besides))
	if err != nil {
		return nil, err
	}
	api := pt.NewHandler(scenario, &pt.APIOptions{Lenient: true, Forget: true})
	server := httptest.NewServer(api)
	defer server.Close()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY="+fakeKey, "CLAUDE_CODE_DISABLE_TERMINAL_TITLE=1")
	cmd.Env = append(cmd.Env, env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &acpClient{in: make(chan *acpFrame, 4096), out: stdin, dir: dir, open: map[string]string{}, permit: "allow_once"}
	go func() {
		defer close(c.in)
		lines := bufio.NewReaderSize(stdout, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			f := new(acpFrame)
			if json.Unmarshal(line, f) == nil {
				c.in <- f
			}
			if err != nil {
				return
			}
		}
	}()
	err = c.play(ctx, sections["client"])
	stdin.Close()
	for range c.in { // ctx ends an agent that does not end with its input
	}
	cmd.Wait()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s\n%.2000s", err, showACP(c.seen), stderr.String())
	}
	return mergeACP(c.seen), nil
}

// play plays the steps of a scenario.
func (c *acpClient) play(ctx context.Context, steps string) error {
	caps := "{}"
	if first, rest, ok := strings.Cut(steps, "\n"); ok && strings.HasPrefix(first, "caps ") {
		caps, steps = strings.TrimPrefix(first, "caps "), rest
	}
	if _, err := c.call(ctx, "initialize", `{"protocolVersion":1,"clientCapabilities":`+caps+`}`); err != nil {
		return err
	}
	c.seen = nil
	for line := range strings.Lines(steps) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.ReplaceAll(rest, "$SID", c.session)
		var err error
		switch word {
		case "", "#":
		case "new":
			err = c.begin(ctx, rest)
		case "prompt", "prompt!":
			text, _ := json.Marshal(rest)
			err = c.prompt(ctx, `[{"type":"text","text":`+string(text)+`}]`, word == "prompt")
		case "blocks":
			err = c.prompt(ctx, rest, true)
		case "permit":
			c.permit = rest
		case "answer":
			c.answer = json.RawMessage(rest)
		case "cancel":
			err = c.write(map[string]any{"method": "session/cancel", "params": map[string]string{"sessionId": c.session}})
		case "until":
			err = c.until(ctx, func(f *acpFrame) bool { return acpKind(f) == rest })
		case "wait":
			err = c.until(ctx, func(*acpFrame) bool { return len(c.open) == 0 })
		case "call":
			method, params, _ := strings.Cut(rest, " ")
			_, err = c.call(ctx, method, params)
		default:
			err = fmt.Errorf("there is no step %q", word)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	return nil
}

// begin opens a session, and waits for its commands.
func (c *acpClient) begin(ctx context.Context, params string) error {
	if params == "" {
		params = `{"cwd":"` + c.dir + `","mcpServers":[]}`
	}
	result, err := c.call(ctx, "session/new", params)
	if err != nil {
		return err
	}
	var r struct{ SessionID string }
	json.Unmarshal(result, &r)
	c.session = r.SessionID
	return c.until(ctx, func(f *acpFrame) bool { return acpKind(f) == "available_commands_update" })
}

func (c *acpClient) prompt(ctx context.Context, blocks string, wait bool) error {
	params := `{"sessionId":"` + c.session + `","prompt":` + blocks + `}`
	if !wait {
		return c.send("session/prompt", params)
	}
	_, err := c.call(ctx, "session/prompt", params)
	return err
}

func (c *acpClient) write(v map[string]any) error {
	v["jsonrpc"] = "2.0"
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.out.Write(append(data, '\n'))
	return err
}

func (c *acpClient) send(method, params string) error {
	c.id++
	c.open[fmt.Sprint(c.id)] = method
	return c.write(map[string]any{"id": c.id, "method": method, "params": json.RawMessage(params)})
}

// call sends a request and waits for its response.
func (c *acpClient) call(ctx context.Context, method, params string) (json.RawMessage, error) {
	if err := c.send(method, params); err != nil {
		return nil, err
	}
	id := fmt.Sprint(c.id)
	var result json.RawMessage
	err := c.until(ctx, func(f *acpFrame) bool {
		if f.Method == "" && string(f.ID) == id {
			result = f.Result
			return true
		}
		return false
	})
	return result, err
}

// until handles frames until over accepts one.
func (c *acpClient) until(ctx context.Context, over func(*acpFrame) bool) error {
	for {
		select {
		case f, ok := <-c.in:
			if !ok {
				return io.ErrUnexpectedEOF
			}
			if err := c.handle(f); err != nil {
				return err
			}
			if over(f) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle records a frame and responds if it is a request.
func (c *acpClient) handle(f *acpFrame) error {
	c.note(f)
	if f.Method == "" {
		delete(c.open, string(f.ID))
		return nil
	}
	if f.ID == nil {
		return nil
	}
	var result any
	switch f.Method {
	case "session/request_permission":
		var p struct {
			Options []struct{ OptionID, Kind string }
		}
		json.Unmarshal(f.Params, &p)
		result = map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
		for _, o := range slices.Backward(p.Options) {
			if o.Kind == c.permit || o.OptionID == c.permit {
				result = map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": o.OptionID}}
			}
		}
		if c.permit == "none" {
			return nil
		}
	case "elicitation/create":
		result = c.answer
	default:
		return c.write(map[string]any{"id": f.ID, "error": map[string]any{"code": -32601, "message": "no such method"}})
	}
	return c.write(map[string]any{"id": f.ID, "result": result})
}

func acpKind(f *acpFrame) string {
	if f.Method != "session/update" {
		return f.Method
	}
	var p struct {
		Update struct{ SessionUpdate string }
	}
	json.Unmarshal(f.Params, &p)
	return p.Update.SessionUpdate
}

// Not compared: usage varies, options and commands are lists that differ between the two
// products, and a title may come at any time.
var notCompared = []string{"usage_update", "available_commands_update", "config_option_update", "session_info_update", "_auth/status_update"}

// note adds a frame to those that are compared.
func (c *acpClient) note(f *acpFrame) {
	kind := acpKind(f)
	if slices.Contains(notCompared, kind) || strings.HasPrefix(f.Method, "_") {
		return
	}
	var v any
	switch {
	case f.Method == "":
		method := c.open[string(f.ID)]
		if f.Error != nil {
			var e struct{ Code int }
			json.Unmarshal(f.Error, &e)
			v = map[string]any{"error": float64(e.Code)}
		} else {
			json.Unmarshal(f.Result, &v)
		}
		if method == "session/new" || method == "session/load" || method == "session/resume" || method == "session/fork" || method == "session/set_config_option" || method == "session/list" {
			v = f.Error != nil
		}
		if m, ok := v.(map[string]any); ok {
			delete(m, "usage")
		}
		v = map[string]any{"response": method, "is": v}
	case kind == f.Method:
		json.Unmarshal(f.Params, &v)
		v = map[string]any{"request": f.Method, "is": c.clean(v)}
	default:
		var p struct{ Update any }
		json.Unmarshal(f.Params, &p)
		v = p.Update
	}
	c.seen = append(c.seen, c.clean(v))
}

// clean removes what varies between runs.
func (c *acpClient) clean(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == "_meta" || k == "messageId" || k == "sessionId" || k == "requestId" || x == nil && k != "oldText" {
				delete(v, k)
			} else {
				v[k] = c.clean(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = c.clean(v[i])
		}
	case string:
		v = strings.ReplaceAll(v, c.dir, "$DIR")
		if c.session != "" {
			v = strings.ReplaceAll(v, c.session, "$SID")
		}
		return v
	}
	return v
}

// mergeACP merges what may come in any number of pieces: texts, and updates of a call up
// to the next event.
func mergeACP(list []any) (merged []any) {
	for _, v := range list {
		m, _ := v.(map[string]any)
		if len(merged) > 0 && m != nil {
			last, _ := merged[len(merged)-1].(map[string]any)
			kind, _ := m["sessionUpdate"].(string)
			if last != nil && strings.HasSuffix(kind, "_chunk") && last["sessionUpdate"] == kind {
				a, _ := last["content"].(map[string]any)
				b, _ := m["content"].(map[string]any)
				if a != nil && b != nil && a["type"] == "text" && b["type"] == "text" {
					a["text"] = a["text"].(string) + b["text"].(string)
					continue
				}
			}
		}
		if m != nil && m["sessionUpdate"] == "tool_call_update" {
			if at := lastUpdate(merged, m["toolCallId"]); at != nil && !ended(at) && (!ended(m) || quiet(merged, at)) {
				maps.Copy(at, m)
				continue
			}
			if len(m) == 2 {
				continue // it had only _meta
			}
		}
		merged = append(merged, v)
	}
	return merged
}

func ended(m map[string]any) bool { return m["status"] == "completed" || m["status"] == "failed" }

// lastUpdate returns the last update of a call, nil if anything but updates of calls came
// after it.
func lastUpdate(list []any, id any) map[string]any {
	for _, v := range slices.Backward(list) {
		m, _ := v.(map[string]any)
		kind, _ := m["sessionUpdate"].(string)
		if !strings.HasPrefix(kind, "tool_call") {
			return nil
		}
		if m["toolCallId"] == id {
			if kind == "tool_call" {
				return nil
			}
			return m
		}
	}
	return nil
}

// quiet reports whether nothing came after an update.
func quiet(list []any, m map[string]any) bool {
	last, _ := list[len(list)-1].(map[string]any)
	return last["toolCallId"] == m["toolCallId"]
}

func showACP(list []any) string {
	var b strings.Builder
	for _, v := range list {
		data, _ := json.Marshal(v)
		b.Write(append(data, '\n'))
	}
	return b.String()
}

// compareACP lists the differences between two runs: a frame that only one wrote, or a
// member that differs.
func compareACP(ref, ours []any) (list []string) {
	key := func(v any) string {
		m, _ := v.(map[string]any)
		s := ""
		for _, k := range []string{"sessionUpdate", "toolCallId", "request", "response"} {
			if x, ok := m[k].(string); ok {
				s = strings.TrimSpace(s + " " + x)
			}
		}
		return s
	}
	ours = catchUp(ref, slices.Clone(ours))
	for len(ref) > 0 || len(ours) > 0 {
		if len(ref) > 0 { // calls run at the same time, so their updates come in any order
			for i, v := range ours {
				if key(v) == key(ref[0]) {
					ours = slices.Insert(slices.Delete(ours, i, i+1), 0, v)
					break
				}
				if !strings.HasPrefix(key(v), "tool_call_update ") || !strings.HasPrefix(key(ref[0]), "tool_call_update ") {
					break
				}
			}
		}
		switch {
		case len(ours) == 0 || len(ref) > 0 && key(ref[0]) != key(ours[0]) && !slices.ContainsFunc(ours, func(v any) bool { return key(v) == key(ref[0]) }):
			list = append(list, fmt.Sprintf("only the reference: %s", strings.TrimSpace(showACP(ref[:1]))))
			ref = ref[1:]
		case len(ref) == 0 || key(ref[0]) != key(ours[0]):
			list = append(list, fmt.Sprintf("only parley: %s", strings.TrimSpace(showACP(ours[:1]))))
			ours = ours[1:]
		default:
			// Updates of a call are patches. Both sides may send one patch instead of two,
			// if the call ends soon enough.
			if !equal(ref[0], ours[0]) {
				if both, rest := joinPatches(ref, key); both != nil && equal(both, ours[0]) {
					ref = rest
				} else if both, rest := joinPatches(ours, key); both != nil && equal(ref[0], both) {
					ours = rest
				} else {
					differences(key(ref[0]), ref[0], ours[0], &list)
				}
			}
			ref, ours = ref[1:], ours[1:]
		}
	}
	return list
}

// catchUp returns our frames without the updates that requests of the reference adapter overtook, which
// happens on a busy machine (§1.5 of the pitfalls). Such a request contains the same members, or the next
// update of its call does.
func catchUp(ref, ours []any) []any {
	for i, v := range ref {
		id := aboutCall(v)
		if id == "" || slices.ContainsFunc(ref[:i], isUpdate(id)) {
			continue
		}
		asked := slices.IndexFunc(ours, func(v any) bool { return aboutCall(v) == id })
		early := slices.IndexFunc(ours, isUpdate(id))
		if early < 0 || asked < early {
			continue
		}
		request, _ := v.(map[string]any)["is"].(map[string]any)
		call, _ := request["toolCall"].(map[string]any)
		var later map[string]any
		if j := slices.IndexFunc(ref[i:], isUpdate(id)); j >= 0 {
			later = ref[i+j].(map[string]any)
		}
		update, missing := ours[early].(map[string]any), false
		for k := range update {
			missing = missing || k != "sessionUpdate" && k != "toolCallId" && call[k] == nil && later[k] == nil
		}
		if missing {
			continue
		}
		ours = slices.Delete(ours, early, early+1)
		if j := slices.IndexFunc(ours, isUpdate(id)); j >= 0 {
			both := maps.Clone(ours[j].(map[string]any))
			for k, v := range update {
				if both[k] == nil && later[k] != nil {
					both[k] = v
				}
			}
			ours[j] = both
		}
	}
	return ours
}

// aboutCall returns the id of the call that a request is about, or "".
func aboutCall(v any) string {
	m, _ := v.(map[string]any)
	if m["request"] == nil {
		return ""
	}
	is, _ := m["is"].(map[string]any)
	if call, ok := is["toolCall"].(map[string]any); ok {
		is = call
	}
	id, _ := is["toolCallId"].(string)
	return id
}

// isUpdate returns a function that reports whether a frame is an update of a call.
func isUpdate(id string) func(any) bool {
	return func(v any) bool {
		m, _ := v.(map[string]any)
		return m["sessionUpdate"] == "tool_call_update" && m["toolCallId"] == id
	}
}

// joinPatches returns the first update joined with the next one of its call, and the list without
// that one. It returns nil if something other than an update comes before it.
func joinPatches(list []any, key func(any) string) (both map[string]any, rest []any) {
	for i, v := range list {
		if !strings.HasPrefix(key(v), "tool_call_update ") {
			break
		}
		if i > 0 && key(v) == key(list[0]) {
			both = maps.Clone(list[0].(map[string]any))
			maps.Copy(both, v.(map[string]any))
			return both, slices.Delete(slices.Clone(list), i, i+1)
		}
	}
	return nil, list
}

func equal(a, b any) bool {
	var list []string
	differences("", a, b, &list)
	return len(list) == 0
}

func differences(path string, a, b any, list *[]string) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && bok {
		keys := slices.Sorted(maps.Keys(am))
		for k := range bm {
			if _, ok := am[k]; !ok {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			differences(path+"."+k, am[k], bm[k], list)
		}
		return
	}
	al, aok := a.([]any)
	bl, bok := b.([]any)
	if aok && bok && len(al) == len(bl) {
		for i := range al {
			differences(fmt.Sprintf("%s[%d]", path, i), al[i], bl[i], list)
		}
		return
	}
	aj, _ := json.Marshal(a)
	bj, _ := json.Marshal(b)
	if string(aj) != string(bj) {
		*list = append(*list, fmt.Sprintf("%s: reference %s, parley %s", path, aj, bj))
	}
}

// acceptedACP returns the intended differences: regular expressions for lines of a
// comparison, which start with the scenario.
func acceptedACP(t *testing.T) []*regexp.Regexp {
	data, err := os.ReadFile("testdata/acp/accepted.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []*regexp.Regexp
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, regexp.MustCompile(line))
		}
	}
	return list
}

// TestACPLikeAdapter checks that parley acp writes the same as the reference adapter with
// the official CLI, for the same scripted model. Differences are in
// testdata/acp/accepted.txt, with their reasons.
func TestACPLikeAdapter(t *testing.T) {
	p := peers(t)
	ours := parleyCLI(t)
	accepted := acceptedACP(t)
	files, err := filepath.Glob("testdata/acp/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	cache := os.Getenv("PARLEY_INTEROP_CACHE")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play := func(env, command []string) []any {
				ctx := testwait.Context(t)
				dir, err := os.MkdirTemp("", "acp") // the official CLI may still write to it at the end
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				work := filepath.Join(dir, "work")
				if err := os.MkdirAll(work, 0o755); err != nil {
					t.Fatal(err)
				}
				seen, err := playACP(ctx, ar, work, filepath.Join(dir, "home"), env, command)
				if err != nil {
					t.Fatalf("%s: %v", command[0], err)
				}
				return seen
			}
			var ref []any
			kept := filepath.Join(cache, "acp-"+name+".json")
			data, err := os.ReadFile(kept)
			if cache == "" || err != nil || json.Unmarshal(data, &ref) != nil {
				ref = play([]string{"CLAUDE_CODE_EXECUTABLE=" + p.CLI()}, []string{"node", filepath.Join(p.Dir, "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js")})
				if data, err := json.Marshal(ref); err == nil && cache != "" {
					os.WriteFile(kept, data, 0o644)
				}
			}
			mine := play(nil, []string{ours, "acp"})
			for _, d := range compareACP(ref, mine) {
				line := name + ": " + d
				if i := slices.IndexFunc(accepted, func(r *regexp.Regexp) bool { return r.MatchString(line) }); i < 0 {
					t.Error(line)
				}
			}
			if testing.Verbose() {
				t.Logf("reference\n%sparley\n%s", showACP(ref), showACP(mine))
			}
		})
	}
}
