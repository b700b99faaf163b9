package mcp

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

func TestResources(t *testing.T) {
	m := manager(t)
	m.Set("dynamic", Server{Name: "plain", Config: child("good")}, Server{Name: "my db", Config: child("rich")})
	ready(t, m)
	env := tooltest.Env(t)
	list, read := find(t, m, "ListMcpResourcesTool"), find(t, m, "ReadMcpResourceTool")
	decide := func(uri string, rules ...policy.Rule) wire.PermissionBehavior {
		input, _ := json.Marshal(map[string]string{"server": "my db", "uri": uri})
		access, err := read.Access(env, input)
		if err != nil {
			t.Fatal(err)
		}
		return policy.New(rules...).Decide(&policy.Request{Tool: read.Spec(), Access: access, Input: input, Mode: wire.ModeDefault}).Behavior
	}
	if got := decide("mem://note"); got != wire.BehaviorAsk {
		t.Errorf("before the server has listed it, a resource is %s", got)
	}
	r := tooltest.Call(t.Context(), env, list, json.RawMessage(`{}`))
	var got []map[string]string
	all, templates, _ := strings.Cut(r.Content.String(), "\n")
	if !strings.Contains(templates, `[{"uriTemplate":"mem://user/{name}","name":"user","server":"my db"}]`) {
		t.Error(templates)
	}
	if err := json.Unmarshal([]byte(all), &got); err != nil || r.IsError || len(got) != 4 || got[1]["uri"] != "mem://note" || got[1]["server"] != "my db" || got[1]["name"] != "n" {
		t.Fatal(err, r.Content)
	}
	deny := policy.Rule{Behavior: wire.BehaviorDeny, Tool: "mcp__my_db"}
	if a, b, c := decide("mem://note"), decide("mem://user/secret"), decide("mem://note", deny); a != wire.BehaviorAllow || b != wire.BehaviorAsk || c != wire.BehaviorDeny {
		t.Errorf("a listed resource is %s, another is %s, a denied one is %s", a, b, c)
	}
	r = tooltest.Call(t.Context(), env, read, json.RawMessage(`{"server":"my db","uri":"mem://note"}`))
	if r.IsError || r.Content.String() != `{"contents":[{"uri":"mem://note","mimeType":"text/plain","text":"a <note>"}]}` {
		t.Error(r.Content)
	}
	r = tooltest.Call(t.Context(), env, read, json.RawMessage(`{"server":"my db","uri":"mem://picture"}`))
	var told struct {
		Contents []struct{ BlobSavedTo string }
	}
	raw, _ := json.Marshal(r.Structured)
	json.Unmarshal(raw, &told)
	if data, err := os.ReadFile(told.Contents[0].BlobSavedTo); err != nil || string(data) != "hello" || len(r.Content.Blocks) != 2 {
		t.Error(string(data), err, len(r.Content.Blocks))
	}
	if _, ok := r.Content.Blocks[1].(*wire.ImageBlock); !ok {
		t.Errorf("%T", r.Content.Blocks[1])
	}
	r = tooltest.Call(t.Context(), env, read, json.RawMessage(`{"server":"my db","uri":"mem://big"}`))
	if text := r.Content.String(); !strings.HasPrefix(text, "<persisted-output>") || len(text) > 4000 {
		t.Errorf("%.200s", text)
	}
	for _, in := range []string{`{"server":"plain","uri":"mem://note"}`, `{"server":"nobody","uri":"mem://note"}`, `{"server":"my db","uri":"mem://nothing"}`} {
		if r := tooltest.Call(t.Context(), env, read, json.RawMessage(in)); !r.IsError {
			t.Error(in, r.Content)
		}
	}
	if r, err := m.ReadResource(t.Context(), "my db", "ui://card"); err != nil || len(r.Contents) != 1 || r.Contents[0].Text != "a <note>" {
		t.Error(r, err)
	}
	if _, err := m.ReadResource(t.Context(), "x", "ui://card"); err == nil {
		t.Error("there is no such server")
	}
	if r := tooltest.Call(t.Context(), env, read, json.RawMessage(`{"server":"my db","uri":"mem://user/ann"}`)); r.IsError || !strings.Contains(r.Content.String(), "mem://user/ann") {
		t.Error(r.Content)
	}
	// Without such a server there are no such tools.
	if err := m.Toggle("my db", false)(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tools, _ := m.Tools(); strings.Contains(names(tools), "McpResource") {
		t.Error(names(tools))
	}
}

// A directory is listed by the server, or filtered from all its resources.
func TestResourceDirectory(t *testing.T) {
	m := manager(t)
	m.Set("dynamic", Server{Name: "lib", Config: child("library")}, Server{Name: "db", Config: child("rich")}, Server{Name: "fib", Config: child("fibber")})
	ready(t, m)
	env := tooltest.Env(t)
	dir := find(t, m, "ReadMcpResourceDirTool")
	for in, want := range map[string]string{
		`{"server":"lib","uri":"lib://shelf"}`: `{"resources":[{"uri":"lib://shelf/a","name":"a"},{"uri":"lib://shelf/b/","name":"b","mimeType":"inode/directory"}]}`,
		`{"server":"db","uri":"mem:/"}`: `{"resources":[{"uri":"mem://big","name":"n","mimeType":"text/plain","description":"d"},{"uri":"mem://note","name":"n","mimeType":"text/plain","description":"d"},` +
			`{"uri":"mem://picture","name":"n","mimeType":"text/plain","description":"d"}]}`,
		`{"server":"db","uri":"mem://no"}`: `{"resources":[]}`,
	} {
		r := tooltest.Call(t.Context(), env, dir, json.RawMessage(in))
		if raw, _ := json.Marshal(r.Structured); r.IsError || r.Content.String() != want || string(raw) != want {
			t.Errorf("%s: %s %s", in, r.Content, raw)
		}
	}
	for _, in := range []string{`{"server":"nobody","uri":"x:y"}`, `{"server":"","uri":"x:y"}`, `{}`} {
		if r := tooltest.Call(t.Context(), env, dir, json.RawMessage(in)); !r.IsError {
			t.Error(in, r.Content)
		}
	}
	access, err := m.dir.Access(nil, json.RawMessage(`{"server":"my db","uri":"file:///w"}`))
	if err != nil || len(access) != 1 || access[0].Name != "mcp__my_db" || access[0].URL != "file:///w" {
		t.Error(access, err)
	}
}

// Rules apply to resources: rules about the tool, the server, and the file that a
// resource is.
func TestResourceRules(t *testing.T) {
	m := manager(t)
	decide := func(behavior wire.PermissionBehavior, rule, server, uri string) wire.PermissionBehavior {
		t.Helper()
		r, err := policy.Parse(rule, behavior, policy.Source{})
		if err != nil {
			t.Fatal(err)
		}
		input, _ := json.Marshal(map[string]string{"server": server, "uri": uri})
		access, err := m.read.Access(nil, input)
		if err != nil {
			t.Fatal(err)
		}
		return policy.New(r).Decide(&policy.Request{Tool: m.read.Spec(), Access: access, Input: input, Mode: wire.ModeDefault, Roots: []string{"/w"}}).Behavior
	}
	for _, tt := range []struct {
		behavior wire.PermissionBehavior
		rule     string
		want     wire.PermissionBehavior
	}{
		{wire.BehaviorDeny, "WebFetch", wire.BehaviorAsk},
		{wire.BehaviorDeny, "ReadMcpResourceTool", wire.BehaviorDeny},
		{wire.BehaviorDeny, "ReadMcpResource", wire.BehaviorDeny},
		{wire.BehaviorDeny, "mcp__my_db", wire.BehaviorDeny},
		{wire.BehaviorDeny, "mcp__my_db__*", wire.BehaviorDeny},
		{wire.BehaviorDeny, "mcp__*", wire.BehaviorDeny},
		{wire.BehaviorDeny, "mcp__my", wire.BehaviorAsk},
		{wire.BehaviorDeny, "mcp__my_db__query", wire.BehaviorAsk},
		{wire.BehaviorDeny, "Read(./secret)", wire.BehaviorDeny},
		{wire.BehaviorAllow, "ReadMcpResourceTool", wire.BehaviorAllow},
		{wire.BehaviorAllow, "mcp__my_db", wire.BehaviorAllow},
		{wire.BehaviorAllow, "mcp__other", wire.BehaviorAsk},
		{wire.BehaviorAllow, "mcp__my_db__query", wire.BehaviorAsk},
	} {
		if got := decide(tt.behavior, tt.rule, "my db", "file:///w/secret"); got != tt.want {
			t.Errorf("%s %s: %s", tt.behavior, tt.rule, got)
		}
	}
	if access, err := m.list.Access(nil, json.RawMessage(`{}`)); err != nil || len(access) != 0 {
		t.Error(access, err)
	}
}

func TestPrompts(t *testing.T) {
	m := manager(t)
	m.Set("dynamic", Server{Name: "db", Config: child("rich")})
	ready(t, m)
	prompts, edition := m.Prompts()
	if len(prompts) != 2 || prompts[0].Name() != "mcp__db__greet" || prompts[0].Hint() != "<name> [how]" || prompts[0].Description() != "Greets somebody. (MCP server db)" {
		t.Fatalf("%+v", prompts)
	}
	for args, want := range map[string]string{
		"Ann":               "Greet Ann ",
		"Ann very warmly":   "Greet Ann very warmly",
		`"Ann Lee" 'so so'`: "Greet Ann Lee so so",
	} {
		c, err := prompts[0].Expand(t.Context(), args)
		if err != nil || len(c.Blocks) != 2 || c.Blocks[0].(*wire.TextBlock).Text != want || c.Blocks[1].(*wire.TextBlock).Text != "You said: I will." {
			t.Error(args, err, c)
		}
	}
	if _, err := prompts[0].Expand(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "/mcp__db__greet <name> [how]") {
		t.Error(err)
	}
	if _, err := prompts[1].Expand(t.Context(), "x"); err == nil {
		t.Error("it takes no arguments")
	}
	// list_changed
	if c, err := prompts[1].Expand(t.Context(), ""); err != nil || c.String() != "More." {
		t.Error(c, err)
	}
	testwait.Until(t, "there is a new prompt", func() bool { list, e := m.Prompts(); return len(list) == 3 && e != edition })
}

// A server that lies about prompts and resources, or never lists them, keeps its tools.
func TestFibs(t *testing.T) {
	defer func(d time.Duration) { promptWait = d }(promptWait)
	promptWait = 500 * time.Millisecond
	m := manager(t)
	m.Set("dynamic", Server{Name: "mute", Config: child("mute")}, Server{Name: "fib", Config: child("fibber")})
	for name, s := range ready(t, m) {
		if s.Status != wire.MCPConnected || len(s.Tools) != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	prompts, _ := m.Prompts()
	if len(prompts) != 1 || prompts[0].Name() != "mcp__fib__ok" || strings.Contains(prompts[0].Description(), "\n") {
		t.Fatalf("%+v", prompts)
	}
	if _, err := prompts[0].Expand(t.Context(), ""); err == nil {
		t.Error("it is no prompt")
	}
	env := tooltest.Env(t)
	// The first response is used, and an unexpected one does no harm.
	if r := tooltest.Call(t.Context(), env, find(t, m, "mcp__fib__t"), json.RawMessage(`{}`)); r.Content.String() != "first" {
		t.Error(r.Content)
	}
	if r := tooltest.Call(t.Context(), env, find(t, m, "mcp__fib__t"), json.RawMessage(`{}`)); r.Content.String() != "first" {
		t.Error("again:", r.Content)
	}
	m.opts.ConnectTimeout = 100 * time.Millisecond // which also limits lists
	for tl, in := range map[tool.Tool]string{m.list: `{}`, m.read: `{"server":"fib","uri":"x:y"}`} {
		if r := tooltest.Call(t.Context(), env, tl, json.RawMessage(in)); !r.IsError {
			t.Error(in, r.Content)
		}
	}
}

// The configuration determines which servers are waited for; a lazy server is connected
// only when a turn starts.
func TestStartup(t *testing.T) {
	m := manager(t)
	with := func(role, startup, timeout string) *wire.MCPServerConfig {
		cfg := child(role)
		cfg.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"` + startup + `"`)}
		if timeout != "" {
			cfg.Extra["startupTimeout"] = json.RawMessage(timeout)
		}
		return cfg
	}
	m.Set("dynamic", Server{Name: "optional", Config: with("silent", "optional", "")}, Server{Name: "short", Config: with("silent", "optional", "50")}, Server{Name: "lazy", Config: with("good", "lazy", "")})
	testwait.Until(t, "one failed by its own deadline", func() bool { return m.Status()[1].Status == wire.MCPFailed })
	for _, s := range m.Status() {
		if s.Name != "short" && s.Status != wire.MCPPending {
			t.Errorf("%+v", s)
		}
	}
	m.Begin(t.Context(), time.Hour)
	if err := m.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	testwait.Until(t, "the lazy server is connected", func() bool { return m.Status()[2].Status == wire.MCPConnected })
	m.Set("dynamic", Server{Name: "must", Config: with("silent", "required", "100")})
	if err := m.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "Failed to connect to MCP server must: the server did not answer within 100ms") {
		t.Error(err)
	}
}
