package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

type rpcLine struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int
		Message string
	}
	batch []*rpcLine
	raw   any
}

// An rpcClient is a client of an agent that speaks JSON-RPC.
type rpcClient struct {
	t    *testing.T
	in   *io.PipeWriter
	out  chan *rpcLine
	code chan int
}

func rpc(t *testing.T, s *parleytest.Scenario, args ...string) *rpcClient {
	t.Helper()
	in, w := io.Pipe()
	r, out := io.Pipe()
	c := &rpcClient{t: t, in: w, out: make(chan *rpcLine, 1000), code: make(chan int, 1)}
	go func() {
		cfg := agent.Config{Cwd: t.TempDir(), Model: s.Model(), Store: &session.Memory{}}
		code := agent.ServeRPC(t.Context(), cfg, args, in, out, io.Discard)
		out.Close()
		c.code <- code
	}()
	go func() {
		defer close(c.out)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 10<<20)
		for lines.Scan() {
			m := new(rpcLine)
			json.Unmarshal(lines.Bytes(), &m.raw)
			if lines.Bytes()[0] == '[' {
				if err := json.Unmarshal(lines.Bytes(), &m.batch); err != nil || len(m.batch) == 0 {
					t.Errorf("no batch: %s", lines.Bytes())
				}
				c.out <- m
				continue
			}
			if err := json.Unmarshal(lines.Bytes(), m); err != nil || m.Version != "2.0" {
				t.Errorf("no JSON-RPC: %s", lines.Bytes())
			}
			c.out <- m
		}
	}()
	t.Cleanup(func() { w.Close() })
	return c
}

func (c *rpcClient) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// until returns the messages up to the first one that f accepts.
func (c *rpcClient) until(f func(*rpcLine) bool) (*rpcLine, []*rpcLine) {
	c.t.Helper()
	var before []*rpcLine
	for {
		select {
		case m, ok := <-c.out:
			if !ok {
				c.t.Fatal("it ended")
			}
			if f(m) {
				return m, before
			}
			before = append(before, m)
		case <-testwait.Late(c.t):
			c.t.Fatal("it never came")
		}
	}
}

func (c *rpcClient) answer(id string) *rpcLine {
	c.t.Helper()
	m, _ := c.until(func(m *rpcLine) bool { return m.Method == "" && string(m.ID) == id })
	return m
}

func (c *rpcClient) end() int {
	c.t.Helper()
	c.in.Close()
	for range c.out {
	}
	return <-c.code
}

func TestRPC(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("Hello."), parleytest.Say("Again.")))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}}`)
	r, before := c.until(func(m *rpcLine) bool { return string(m.ID) == "1" })
	var kinds []string
	for _, m := range before {
		var has struct{ Type string }
		json.Unmarshal(m.Params, &has)
		kinds = append(kinds, m.Method+" "+has.Type)
	}
	if got := strings.Join(kinds, ", "); got != "message command_lifecycle, message command_lifecycle, message system, message assistant, message result" {
		t.Error(got)
	}
	var result struct {
		Type, Subtype, Result string
		NumTurns              int `json:"num_turns"`
	}
	if json.Unmarshal(r.Result, &result); result.Type != "result" || result.Subtype != "success" || result.Result != "Hello." || result.NumTurns != 1 {
		t.Errorf("%s", r.Result)
	}
	c.send(`{"jsonrpc":"2.0","id":"two","method":"run","params":{"prompt":[{"type":"text","text":"hi again"}]}}`)
	if r := c.answer(`"two"`); !strings.Contains(string(r.Result), "Again.") {
		t.Errorf("%s", r.Result)
	}
	// Control requests are methods.
	c.send(`{"jsonrpc":"2.0","id":3,"method":"interrupt"}`)
	if r := c.answer("3"); r.Error != nil {
		t.Errorf("%+v", r.Error)
	}
	c.send(`{"jsonrpc":"2.0","id":4,"method":"set_permission_mode","params":{"mode":"plan"}}`)
	if r := c.answer("4"); string(r.Result) != `{"mode":"plan"}` {
		t.Errorf("%s", r.Result)
	}
	if code := c.end(); code != 0 {
		t.Error("exit status", code)
	}
}

func TestRPCInterrupt(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("x").Stall()))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}}`)
	c.until(func(m *rpcLine) bool { return strings.Contains(string(m.Params), `"init"`) })
	c.send(`{"jsonrpc":"2.0","id":2,"method":"run","params":{"prompt":"wait","uuid":"5a3c5a38-3a66-4a7e-a5c6-2f8d2a5f3a10"}}`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"interrupt","params":{"cancel_queued":true}}`)
	got := map[string]string{}
	for len(got) < 3 {
		m, _ := c.until(func(m *rpcLine) bool { return m.Method == "" })
		got[string(m.ID)] = string(m.Result)
		if m.Error != nil {
			got[string(m.ID)] = fmt.Sprint(m.Error.Code)
		}
	}
	if got["2"] != "-32001" || !strings.Contains(got["3"], "5a3c5a38") || !strings.Contains(got["1"], "error_during_execution") {
		t.Error(got)
	}
	c.end()
}

// A question of the agent is a request.
func TestRPCAsked(t *testing.T) {
	c := rpc(t, parleytest.Script(
		parleytest.Call("Bash", `{"command":"touch x"}`),
		parleytest.Expect(parleytest.ToolResult("not here")).Say("Well."),
	), "--permission-prompt-tool", "stdio")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}}`)
	q, _ := c.until(func(m *rpcLine) bool { return m.Method == "can_use_tool" })
	if !strings.Contains(string(q.Params), `"touch x"`) || strings.Contains(string(q.Params), "subtype") {
		t.Errorf("%s", q.Params)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"behavior":"deny","message":"not here"}}`, q.ID))
	if r := c.answer("1"); !strings.Contains(string(r.Result), "Well.") {
		t.Errorf("%s", r.Result)
	}
	c.end()
}

func TestRPCBadInput(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("Hello.")))
	for _, tt := range []struct {
		line, id string
		code     int
	}{
		{`{"jsonrpc":`, "null", -32700},
		{`hello`, "null", -32700},
		{`[]`, "null", -32600},
		{`[{"jsonrpc":`, "null", -32700},
		{`5`, "null", -32600},
		{`{"id":7,"method":"run"}`, "7", -32600},
		{`{"jsonrpc":"1.0","id":7,"method":"run"}`, "7", -32600},
		{`{"jsonrpc":"2.0","id":{},"method":"run"}`, "null", -32600},
		{`{"jsonrpc":"2.0","id":7}`, "7", -32600},
		{`{"jsonrpc":"2.0","id":7,"method":5}`, "null", -32600},
		{`{"jsonrpc":"2.0","id":7,"method":"nothing"}`, "7", -32601},
		{`{"jsonrpc":"2.0","id":7,"method":"can_use_tool","params":{}}`, "7", -32601},
		{`{"jsonrpc":"2.0","id":7,"method":"run","params":["hi"]}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"run"}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"run","params":{"prompt":5}}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"run","params":{"prompt":null}}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"run","params":{"prompt":"x","uuid":1}}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"set_permission_mode","params":{"mode":"wild"}}`, "7", -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"mcp_reconnect","params":{"serverName":"x"}}`, "7", -32000},
	} {
		c.send(tt.line)
		m, _ := c.until(func(m *rpcLine) bool { return m.Error != nil })
		if string(m.ID) != tt.id || m.Error.Code != tt.code || m.Error.Message == "" {
			t.Errorf("%s: %s %+v", tt.line, m.ID, m.Error)
		}
	}
	// It still works, and a response that nobody waits for does no harm.
	c.send("\n" + `{"jsonrpc":"2.0","id":99,"result":{}}`)
	c.send(`{"jsonrpc":"2.0","id":8,"method":"run","params":{"prompt":"hi"}}`)
	if r := c.answer("8"); !strings.Contains(string(r.Result), "Hello.") {
		t.Errorf("%s", r.Result)
	}
	if code := c.end(); code != 0 {
		t.Error("exit status", code)
	}
}

// Several messages in a batch are answered together, when all of them are done.
func TestRPCBatch(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("Hello."), parleytest.Say("Again.")))
	answers := func() map[string]*rpcLine {
		t.Helper()
		m, _ := c.until(func(m *rpcLine) bool { return m.batch != nil })
		got := map[string]*rpcLine{}
		for _, one := range m.batch {
			if one.Version != "2.0" || got[string(one.ID)] != nil && string(one.ID) != "null" {
				t.Errorf("%+v", one)
			}
			got[string(one.ID)] = one
		}
		return got
	}
	c.send(`[{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}},{"jsonrpc":"2.0","id":"s","method":"mcp_status"},{"jsonrpc":"2.0","method":"set_permission_mode","params":{"mode":"plan"}},` +
		`7,[],{"jsonrpc":"2.0","id":3,"method":"nothing"},{"jsonrpc":"2.0","id":4,"method":"run"},{"jsonrpc":"2.0","id":99,"result":{}}]`)
	got := answers()
	if len(got) != 5 || !strings.Contains(string(got["1"].Result), "Hello.") || !strings.Contains(string(got[`"s"`].Result), "mcpServers") || got["null"].Error.Code != -32600 ||
		got["3"].Error.Code != -32601 || got["4"].Error.Code != -32602 {
		t.Errorf("%+v", got)
	}
	c.send(`[{"jsonrpc":"2.0","id":5,"method":"can_use_tool"}]`)
	if got := answers(); len(got) != 1 || got["5"].Error.Code != -32601 {
		t.Errorf("%+v", got)
	}
	// Notifications get no response, not even in a batch, nor if they are invalid.
	c.send(`[{"jsonrpc":"2.0","method":"interrupt"},{"jsonrpc":"2.0","method":"nothing"},{"jsonrpc":"2.0","method":"run","params":7}]`)
	c.send(`{"jsonrpc":"2.0","id":6,"method":"run","params":{"prompt":"hi"}}`)
	r, before := c.until(func(m *rpcLine) bool { return m.Method == "" })
	if !strings.Contains(string(r.Result), "Again.") {
		t.Errorf("%+v after %v", r, before)
	}
	if code := c.end(); code != 0 {
		t.Error("exit status", code)
	}
}

// A batch is answered in full even if the agent ends before.
func TestRPCBatchEnds(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("x").Stall()))
	c.send(`[{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}},{"jsonrpc":"2.0","id":2,"method":"mcp_status"}]`)
	c.until(func(m *rpcLine) bool { return strings.Contains(string(m.Params), `"init"`) })
	c.send(`{"jsonrpc":"2.0","id":3,"method":"end_session"}`)
	var batch []*rpcLine
	for m := range c.out {
		if m.batch != nil {
			batch = m.batch
		}
	}
	if len(batch) != 2 {
		t.Errorf("%+v", batch)
	}
	<-c.code
}

// An agent that ends leaves no request without an answer.
func TestRPCEnds(t *testing.T) {
	c := rpc(t, parleytest.Script(parleytest.Say("x").Stall()))
	c.send(`{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hi"}}`)
	c.until(func(m *rpcLine) bool { return strings.Contains(string(m.Params), `"init"`) })
	c.send(`{"jsonrpc":"2.0","id":2,"method":"end_session"}`)
	got := map[string]bool{}
	for m := range c.out {
		if m.Method == "" {
			got[string(m.ID)] = true
		}
	}
	if !got["1"] || !got["2"] {
		t.Error(got)
	}
	<-c.code
}

func TestRPCFlags(t *testing.T) {
	for _, args := range [][]string{{"a prompt"}, {"--output-format", "text"}, {"--nonsense"}} {
		var stderr strings.Builder
		if code := agent.ServeRPC(t.Context(), agent.Config{Cwd: t.TempDir()}, args, strings.NewReader(""), io.Discard, &stderr); code != 1 || stderr.Len() == 0 {
			t.Error(args, code, stderr.String())
		}
	}
}

// The examples of docs/rpc.md match the server's output, and its methods exist.
func TestRPCManual(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "rpc.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(manual), "```json\n")
	if len(blocks) != 5 {
		t.Fatalf("%d examples", len(blocks)-1)
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	c := rpc(t, parleytest.Script(parleytest.Say("A test is flaky."), parleytest.Say("It still is.")))
	for _, pair := range [][2]string{{blocks[1], blocks[2]}, {blocks[3], blocks[4]}} {
		c.send(strings.TrimSpace(pair[0]))
		for want := range strings.Lines(pair[1]) {
			var v any
			if err := json.Unmarshal([]byte(want), &v); err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			c.until(func(m *rpcLine) bool { return holds(m.raw, v) })
		}
	}
	for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(string(manual), -1) {
		switch name[1] {
		case "initialize", "set_model", "set_permission_mode", "mcp_status", "interrupt":
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{}}`, name[1], name[1]))
			if r := c.answer(fmt.Sprintf("%q", name[1])); r.Error != nil && r.Error.Code == -32601 {
				t.Error(name[1], r.Error)
			}
		}
	}
	c.send(`{"jsonrpc":"2.0","id":"end","method":"end_session"}`)
	if r := c.answer(`"end"`); r.Error != nil {
		t.Error(r.Error)
	}
	c.end()
}

// holds reports whether a value contains another one. Each element of a list must be
// there.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		for name, v := range want {
			ok = ok && holds(have[name], v)
		}
		return ok
	case []any:
		have, ok := got.([]any)
		for _, v := range want {
			ok = ok && slices.ContainsFunc(have, func(h any) bool { return holds(h, v) })
		}
		return ok
	}
	return got == want
}
