package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// A recording is the output of an official CLI: the kinds of its messages in order, and
// for each kind the paths that were always there, with their values.
type recording struct {
	order  []string
	shapes map[string]map[string]string
}

// recordings reads testdata/recorded-mcp.txt: a line "== name" starts one, "> kind" is a
// message, "# kind" starts the paths of a kind, which also apply to the recordings after
// it.
func recordings(t *testing.T) map[string]*recording {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded-mcp.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all, shapes := map[string]*recording{}, map[string]map[string]string{}
	var r *recording
	kind := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch mark, rest, _ := strings.Cut(line, " "); mark {
		case "==":
			if r != nil {
				shapes = r.shapes
			}
			r = &recording{shapes: map[string]map[string]string{}}
			for k, v := range shapes {
				r.shapes[k] = v
			}
			all[rest] = r
		case ">":
			r.order = append(r.order, rest)
		case "#":
			kind = rest
			r.shapes[kind] = map[string]string{}
		default:
			r.shapes[kind][mark] = rest
		}
	}
	return all
}

// paths collects the values of a value by path.
func paths(v any, at string, found map[string]string) {
	note := func(kind string) {
		if at != "" && !strings.Contains(found[at], kind) {
			found[at] = strings.TrimPrefix(found[at]+"|"+kind, "|")
		}
	}
	switch v := v.(type) {
	case map[string]any:
		note("object")
		for k, x := range v {
			if strings.HasPrefix(k, "claude-") {
				k = "*"
			}
			paths(x, strings.TrimPrefix(at+"."+k, "."), found)
		}
	case []any:
		note("array")
		for _, x := range v {
			paths(x, at+"[]", found)
		}
	case string:
		note("string")
	case float64:
		note("number")
	case bool:
		note("boolean")
	default:
		note("null")
	}
}

// unlike lists what differs from the recordings on purpose, with the reason.
var unlike = map[string]string{
	"control_request mcp_message initialize request.message.params.clientInfo.title":       "we are another client",
	"control_request mcp_message initialize request.message.params.clientInfo.description": "we are another client",
	"control_request mcp_message initialize request.message.params.clientInfo.websiteUrl":  "we are another client",
	"control_response initialize success response.response.user_output_styles_dir":         "nothing of the user's is read here",
	"system init memory_paths":              "notes are not switched on",
	"system init memory_paths.auto":         "notes are not switched on",
	"system init messaging_socket_path":     "there is no such socket",
	"system init skills[]":                  "no skills are built in",
	"system init plugins[]":                 "no plugins are built in",
	"system init plugins[].name":            "no plugins are built in",
	"system init plugins[].path":            "no plugins are built in",
	"system init plugins[].source":          "no plugins are built in",
	"system init terminal_slash_commands[]": "no command needs a terminal",
}

// A replay is the output of our agent when a host and a model do the same.
type replay struct {
	name   string
	args   []string
	script *parleytest.Scenario
	steps  []string // lines to send; "wait KIND" waits for a message of that kind
	tools  []string // the tools that the host's server lists, one time after the other
}

// TestRecordedMCP compares our agent's messages about MCP servers with those of an
// official CLI in the same conversation, field for field: the order of messages, and
// every path with the kind of its value. Ours may contain more, but not less.
func TestRecordedMCP(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		json.NewDecoder(r.Body).Decode(&m)
		result := map[string]string{
			"initialize": `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"1"}}`,
			"tools/list": `{"tools":[{"name":"ping","inputSchema":{"type":"object"}}]}`, "tools/call": `{"content":[{"type":"text","text":"pong"}]}`,
		}[m.Method]
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case result == "":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		}
	}))
	defer web.Close()
	const (
		hello  = `{"type":"control_request","request_id":"i","request":{"subtype":"initialize"}}`
		inHost = `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","sdkMcpServers":["calc"]}}`
		hi     = `{"type":"user","session_id":"","message":{"role":"user","content":[{"type":"text","text":"hi"}]},"parent_tool_use_id":null}`
		status = `{"type":"control_request","request_id":"st","request":{"subtype":"mcp_status"}}`
		add    = `{"name":"add","description":"adds","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}},"required":["a","b"]}}`
		boom   = `{"name":"boom","description":"x","inputSchema":{"type":"object","properties":{}}}`
	)
	demo := fmt.Sprintf(`{"command":%q,"args":["serve"],"env":{"PARLEY_AGENT_TEST_SERVER":"demo"}}`, self(t))
	ask := func(id, request string) string {
		return fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":%s}`, id, request)
	}
	needed := map[string]bool{}
	for _, p := range []replay{
		{"09-sdk-mcp", []string{"--permission-prompt-tool", "stdio", "--allowedTools", "mcp__calc__add"},
			parleytest.Script(parleytest.Call("mcp__calc__add", `{"a":1,"b":2}`), parleytest.Call("mcp__calc__boom", `{}`), parleytest.Say("three")),
			[]string{inHost, hi, "wait result success", status, "wait control_response mcp_status success"}, []string{add + "," + boom}},
		{"09b-sdk-mcp-via-config", []string{"--permission-prompt-tool", "stdio", "--mcp-config", `{"mcpServers":{"calc":{"type":"sdk","name":"calc"}}}`, "--allowedTools", "mcp__calc__add"},
			parleytest.Script(parleytest.Call("mcp__calc__add", `{"a":1,"b":2}`), parleytest.Say("three")),
			[]string{hello, hi, "wait result success", status, "wait control_response mcp_status success"}, []string{add + "," + boom}},
		{"09c-sdk-mcp-error", nil, parleytest.Script(parleytest.Say("x")), []string{inHost, "wait control_response initialize success", hi, "wait result success", status, "wait control_response mcp_status success"}, nil},
		{"09d-tools-list-changed", nil, parleytest.Script(parleytest.Say("a"), parleytest.Expect(parleytest.Tools("mcp__calc__extra")).Say("b")),
			[]string{inHost, "wait control_response initialize success", hi, "wait result success",
				ask("n", `{"subtype":"mcp_message","server_name":"calc","message":{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}}`), "wait control_request mcp_message tools/list", "settled",
				status, "wait control_response mcp_status success", hi, "wait result success"}, []string{add + "," + boom, add + "," + strings.Replace(boom, "boom", "extra", 1)}},
		{"10-stdio-mcp", []string{"--mcp-config", fmt.Sprintf(`{"mcpServers":{"demo":%s,"broken":{"command":"/nonexistent/x"}}}`, demo), "--strict-mcp-config", "--allowedTools", "mcp__demo__echo,mcp__demo__fail"},
			parleytest.Script(parleytest.Call("mcp__demo__echo", `{"text":"hey"}`), parleytest.Call("mcp__demo__fail", `{}`), parleytest.Say("fin"), parleytest.Say("ok")),
			[]string{hello, "wait control_response initialize success", hi, "wait result success", status, "wait control_response mcp_status success",
				ask("mc", `{"subtype":"mcp_call","server":"demo","tool":"echo","arguments":{"text":"direct"}}`), "wait control_response mcp_call error",
				ask("mr", `{"subtype":"mcp_read_resource","server":"demo","uri":"demo://a","serverName":"demo"}`), "wait control_response mcp_read_resource error",
				ask("rc", `{"subtype":"mcp_reconnect","serverName":"demo"}`), "wait control_response mcp_reconnect success",
				ask("tg", `{"subtype":"mcp_toggle","serverName":"demo","enabled":false}`), "wait control_response mcp_toggle success",
				ask("st2", `{"subtype":"mcp_status"}`), "wait control_response mcp_status success",
				ask("ss", fmt.Sprintf(`{"subtype":"mcp_set_servers","servers":{"demo2":%s,"bad":{"command":"/nonexistent/y"}}}`, demo)), "wait control_response mcp_set_servers success",
				ask("st3", `{"subtype":"mcp_status"}`), "wait control_response mcp_status success", hi, "wait result success"}, nil},
		{"10b-elicitation-progress", []string{"--permission-prompt-tool", "stdio", "--mcp-config", fmt.Sprintf(`{"mcpServers":{"demo":%s}}`, strings.Replace(demo, `"demo"`, `"asking"`, 1))},
			parleytest.Script(parleytest.Call("mcp__demo__ask", `{}`), parleytest.Call("mcp__demo__slow", `{}`), parleytest.Say("fin")),
			[]string{hello, "wait control_response initialize success", hi, "wait result success", ask("mc", `{"subtype":"mcp_call","tool":"mcp__demo__ask","arguments":{}}`), "wait control_response mcp_call success"}, nil},
		{"10c-http-mcp", []string{"--mcp-config", fmt.Sprintf(`{"mcpServers":{"h":{"type":"http","url":%q,"headers":{"X-Test":"1"}}}}`, web.URL), "--allowedTools", "mcp__h"},
			parleytest.Script(parleytest.Call("mcp__h__ping", `{}`), parleytest.Say("fin")),
			[]string{hello, "wait control_response initialize success", hi, "wait result success", status, "wait control_response mcp_status success"}, nil},
	} {
		t.Run(p.name, func(t *testing.T) {
			want := recordings(t)[p.name]
			if want == nil {
				t.Fatal("there is no such recording")
			}
			order, messages := p.play(t)
			// The order of initialize for the host and for its servers is a race in the
			// recordings; so is the time of commands_changed.
			for _, channel := range []string{"control_request", "control_response", ""} {
				pick := func(order []string) (list []string) {
					for _, kind := range order {
						first, _, _ := strings.Cut(kind, " ")
						if first == channel || channel == "" && !strings.HasPrefix(first, "control_") && kind != "system commands_changed" && first != "command_lifecycle" && first != "keep_alive" {
							list = append(list, kind)
						}
					}
					return list
				}
				if got, want := pick(order), pick(want.order); !slices.Equal(got, want) {
					t.Errorf("order:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
			if slices.Contains(want.order, "system commands_changed") && !slices.Contains(order, "system commands_changed") {
				t.Error("that commands have changed is not told")
			}
			for i, kind := range order {
				found := map[string]string{}
				paths(messages[i], "", found)
				for path, kinds := range want.shapes[kind] {
					if _, ok := found[path]; !ok && unlike[kind+" "+path] != "" {
						needed[kind+" "+path] = true
						continue
					}
					for have := range strings.SplitSeq(found[path], "|") {
						if !slices.Contains(strings.Split(kinds, "|"), have) {
							t.Errorf("%s: %s is %q, want %s", kind, path, have, kinds)
						}
					}
				}
			}
		})
	}
	for path := range unlike {
		if !needed[path] {
			t.Errorf("%s is there after all", path)
		}
	}
}

// play plays a recording's host against our agent and returns the messages and their
// kinds.
func (p *replay) play(t *testing.T) (order []string, messages []any) {
	t.Helper()
	in, w := io.Pipe()
	r, out := io.Pipe()
	done := make(chan int, 1)
	go func() {
		cfg := agent.Config{Cwd: t.TempDir(), Environ: os.Environ(), Model: p.script.Model(), Store: &session.Memory{}}
		code := agent.Run(t.Context(), cfg, append([]string{"--print", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}, p.args...), in, out, io.Discard)
		out.Close()
		done <- code
	}()
	defer func() {
		w.Close()
		io.Copy(io.Discard, r)
		if code := <-done; code != 0 {
			t.Error("exit status", code)
		}
	}()
	lines := make(chan []byte, 1000)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 10<<20)
		for s.Scan() {
			lines <- slices.Clone(s.Bytes())
		}
	}()
	asked := map[string]string{} // subtypes of our requests
	seen := map[string]int{}
	listed := 0
	ending := false // the input has ended
	send := func(line string) {
		t.Helper()
		var m struct {
			RequestID string `json:"request_id"`
			Request   struct{ Subtype string }
		}
		json.Unmarshal([]byte(line), &m)
		asked[m.RequestID] = m.Request.Subtype
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	// next reads a message, and responds if it is a request.
	next := func(late <-chan time.Time) bool {
		t.Helper()
		var line []byte
		select {
		case l, ok := <-lines:
			if !ok && !ending {
				t.Fatal("the agent ended")
			}
			if !ok {
				return false
			}
			line = l
		case <-late:
			return false
		}
		var m struct {
			Type, Subtype string
			RequestID     string `json:"request_id"`
			Request       struct {
				Subtype string
				Message json.RawMessage
			}
			Response struct {
				Subtype   string
				RequestID string `json:"request_id"`
			}
		}
		var v any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		json.Unmarshal(line, &v)
		var inner struct {
			ID     json.RawMessage
			Method string
		}
		json.Unmarshal(m.Request.Message, &inner)
		kind := strings.TrimSpace(m.Type + " " + m.Subtype)
		switch m.Type {
		case "control_request":
			kind = strings.TrimSpace(m.Type + " " + m.Request.Subtype + " " + inner.Method)
			answer := `{"behavior":"allow","updatedInput":{}}`
			result := ""
			switch m.Request.Subtype + " " + inner.Method {
			case "elicitation ":
				answer = `{"action":"accept","content":{"name":"bob"}}`
			case "mcp_message initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"calc","version":"1.0.0"}}`
			case "mcp_message tools/list":
				result = `{"tools":[` + p.tools[min(listed, len(p.tools)-1)] + `]}`
				listed++
			case "mcp_message tools/call":
				result = `{"content":[{"type":"text","text":"3"}]}`
				if strings.Contains(string(line), `"boom"`) {
					result = `{"content":[{"type":"text","text":"boom!"}],"isError":true}`
				}
			}
			id := inner.ID
			if m.Request.Subtype == "mcp_message" {
				if result == "" {
					id, result = json.RawMessage("0"), "{}"
				}
				answer = fmt.Sprintf(`{"mcp_response":{"jsonrpc":"2.0","id":%s,"result":%s}}`, id, result)
			}
			response := fmt.Sprintf(`{"subtype":"success","request_id":%q,"response":%s}`, m.RequestID, answer)
			if m.Request.Subtype == "mcp_message" && p.tools == nil {
				response = fmt.Sprintf(`{"subtype":"error","request_id":%q,"error":"server not found"}`, m.RequestID)
			}
			io.WriteString(w, `{"type":"control_response","response":`+response+"}\n")
		case "control_response":
			kind = m.Type + " " + asked[m.Response.RequestID] + " " + m.Response.Subtype
		}
		order, messages = append(order, kind), append(messages, v)
		seen[kind]++
		return true
	}
	used := map[string]int{}
	for _, step := range p.steps {
		kind, waits := strings.CutPrefix(step, "wait ")
		switch {
		case step == "settled": // the effect of the last response is not reported: look for it
			for listed < len(p.tools) && next(testwait.Late(t)) {
			}
			for next(time.After(300 * time.Millisecond)) {
			}
		case waits:
			used[kind]++
			if kind == "control_request mcp_message tools/list" {
				used[kind] = len(p.tools)
			}
			for seen[kind] < used[kind] {
				if !next(testwait.Late(t)) {
					t.Fatalf("%s never came; there were %s", kind, strings.Join(order, ", "))
				}
			}
		default:
			send(step)
		}
	}
	w.Close()
	for ending = true; next(testwait.Late(t)); {
	}
	return order, messages
}
