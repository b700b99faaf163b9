package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/transport"
)

// PythonStandIn replaces the official Python SDK where that cannot be installed: a host
// with the same output. It asks the CLI for its version first, passes an empty system
// prompt as a flag, sends hooks:null when there are none, writes the prompt after
// initialize was answered, and names the session of a conversation "default".
type PythonStandIn struct{}

// Name returns "py-stand-in".
func (PythonStandIn) Name() string { return "py-stand-in" }

// Drive runs the job.
func (PythonStandIn) Drive(ctx context.Context, job *Job) ([]Event, error) {
	h := &pyHost{job: job, report: newReport(), in: newInbox(), waiting: map[string]chan map[string]any{}, running: map[string]context.CancelFunc{}, results: make(chan struct{}, 1)}
	failed := false
	if err := h.drive(ctx); err != nil {
		failed = true
		h.report.add("error", map[string]any{"name": fmt.Sprintf("%T", err), "message": err.Error()})
	}
	h.report.add("end", map[string]any{"failed": failed})
	return h.report.all(), nil
}

type pyHost struct {
	job    *Job
	report *report
	in     *inbox
	conn   transport.Conn
	rules  rules
	hooks  []hookEntry // by the number in their id

	writing sync.Mutex

	mu      sync.Mutex
	n       int
	waiting map[string]chan map[string]any // our requests
	running map[string]context.CancelFunc  // the CLI's
	asked   sync.WaitGroup
	results chan struct{} // has an element once a result arrived
}

type hookEntry struct {
	event string
	rule  Rule
	left  *quota
}

// flags converts options to the flags of the Python SDK.
func (h *pyHost) flags() ([]string, error) {
	args := []string{"--output-format", "stream-json", "--verbose"}
	prompt := []string{"--system-prompt", ""}
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(h.job.Options)) {
		raw := h.job.Options[name]
		var s string
		var list []string
		isText, isList := json.Unmarshal(raw, &s) == nil, json.Unmarshal(raw, &list) == nil
		switch name {
		case "cwd":
		case "systemPrompt":
			if prompt = []string{"--system-prompt", s}; !isText {
				var preset struct{ Append string }
				if err := json.Unmarshal(raw, &preset); err != nil {
					return nil, err
				}
				if prompt = nil; preset.Append != "" {
					prompt = []string{"--append-system-prompt", preset.Append}
				}
			}
		case "resume", "sessionId", "resumeSessionAt":
			rest = append(rest, kebab(name)+"="+s)
		case "allowedTools", "disallowedTools":
			rest = append(rest, "--"+name, strings.Join(list, ","))
		case "settingSources":
			rest = append(rest, "--setting-sources="+strings.Join(list, ","))
		case "mcpServers", "extraArgs":
		case "outputFormat":
			var format struct{ Schema json.RawMessage }
			if err := json.Unmarshal(raw, &format); err != nil {
				return nil, err
			}
			rest = append(rest, "--json-schema", string(format.Schema))
		default:
			switch {
			case string(raw) == "false":
			case string(raw) == "true":
				rest = append(rest, kebab(name))
			case isList:
				rest = append(rest, kebab(name), strings.Join(list, ","))
			case isText:
				rest = append(rest, kebab(name), s)
			default:
				rest = append(rest, kebab(name), string(raw))
			}
		}
	}
	if h.job.CanUseTool != nil {
		rest = append(rest, "--permission-prompt-tool", "stdio")
	}
	servers := map[string]json.RawMessage{}
	if raw := h.job.Options["mcpServers"]; raw != nil {
		if err := json.Unmarshal(raw, &servers); err != nil {
			return nil, err
		}
	}
	for name := range h.job.Tools {
		servers[name] = json.RawMessage(fmt.Sprintf(`{"type":"sdk","name":%q}`, name))
	}
	if len(servers) > 0 {
		config, err := json.Marshal(map[string]any{"mcpServers": servers})
		if err != nil {
			return nil, err
		}
		rest = append(rest, "--mcp-config", string(config))
	}
	if raw := h.job.Options["extraArgs"]; raw != nil {
		var extra map[string]*string
		if err := json.Unmarshal(raw, &extra); err != nil {
			return nil, err
		}
		for flag, v := range extra {
			if rest = append(rest, "--"+flag); v != nil {
				rest = append(rest, *v)
			}
		}
	}
	args = append(append(args, prompt...), rest...)
	return append(args, "--input-format", "stream-json"), nil
}

// kebab converts the name of an option to a flag.
func kebab(name string) string {
	return "--" + strings.ToLower(regexp.MustCompile(`[A-Z]`).ReplaceAllString(name, "-$0"))
}

func (h *pyHost) drive(ctx context.Context) error {
	args, err := h.flags()
	if err != nil {
		return err
	}
	var cwd string
	if raw := h.job.Options["cwd"]; raw != nil {
		if err := json.Unmarshal(raw, &cwd); err != nil {
			return err
		}
	}
	env := os.Environ()
	for k, v := range h.job.Env {
		env = append(env, k+"="+v)
	}
	env = append(env, "CLAUDE_CODE_ENTRYPOINT=sdk-py", "CLAUDE_AGENT_SDK_VERSION=0.2.182")
	if cwd != "" {
		env = append(env, "PWD="+cwd)
	}
	probing, cancel := context.WithTimeout(ctx, 2*time.Second)
	probe := exec.CommandContext(probing, h.job.CLI, "-v")
	probe.Env = env
	version, err := probe.Output() // failures are ignored
	cancel()
	if m := regexp.MustCompile(`^(\d+)\.\d+\.\d+`).FindSubmatch(version); err == nil && (m == nil || string(m[1]) < "2") {
		h.report.add("warning", map[string]any{"message": fmt.Sprintf("the version %q is too old", version)})
	}

	h.rules.list = append(h.rules.list, h.job.CanUseTool...)
	dialer := &transport.Process{}
	h.conn, err = dialer.Dial(ctx, transport.Spec{Path: h.job.CLI, Words: args, Env: env, Dir: cwd, Stderr: func(line string) {
		h.report.add("stderr", map[string]any{"data": line})
	}})
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines(bufio.NewReaderSize(h.conn, 1<<16), func(line string) { h.handle(ctx, line) })
		h.in.end()
		h.mu.Lock()
		for id, c := range h.waiting {
			close(c)
			delete(h.waiting, id)
		}
		for _, cancel := range h.running {
			cancel()
		}
		h.mu.Unlock()
		select {
		case h.results <- struct{}{}:
		default:
		}
	}()

	err = h.talk(ctx)
	h.conn.CloseWrite()
	if h.job.Steps != nil || err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err = errors.Join(err, h.conn.Close(closing))
	}
	exit, waiting := h.conn.Wait(ctx)
	<-read
	h.asked.Wait()
	if err == nil && h.job.Steps == nil {
		if err = waiting; err == nil && exit.Code != 0 {
			err = fmt.Errorf("the CLI ended with status %d: %s", exit.Code, exit.Stderr)
		}
	}
	return err
}

// talk initializes the CLI and runs the job.
func (h *pyHost) talk(ctx context.Context) error {
	var hooks any
	if h.job.Hooks != nil {
		table := map[string][]any{}
		for _, event := range slices.Sorted(maps.Keys(h.job.Hooks)) {
			for _, rule := range h.job.Hooks[event] {
				entry := map[string]any{"matcher": rule.Matcher, "hookCallbackIds": []string{fmt.Sprintf("hook_%d", len(h.hooks))}}
				if rule.Timeout != nil {
					entry["timeout"] = *rule.Timeout
				}
				h.hooks = append(h.hooks, hookEntry{event, rule, newQuota(rule)})
				table[event] = append(table[event], entry)
			}
		}
		hooks = table
	}
	if _, err := h.request(ctx, map[string]any{"subtype": "initialize", "hooks": hooks}); err != nil {
		return err
	}
	prompt := func(content any, session string, more map[string]json.RawMessage) error {
		m := map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": content}, "parent_tool_use_id": nil, "session_id": session}
		for k, v := range more {
			m[k] = v
		}
		return h.write(m)
	}
	if h.job.Steps == nil {
		if err := prompt(h.job.Prompt, "", nil); err != nil {
			return err
		}
		if h.job.Hooks != nil || h.job.Tools != nil || h.job.CanUseTool != nil {
			select {
			case <-h.results:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	for _, step := range h.job.Steps {
		switch {
		case step.Send != nil:
			if err := prompt(step.Send, "default", step.Fields); err != nil {
				return err
			}
		case step.Until != nil:
			if err := h.in.until(ctx, step.Until); err != nil {
				return err
			}
		case step.Call != "":
			call := func() { h.call(ctx, step) }
			if step.Background {
				calls.Go(call)
			} else {
				call()
			}
		case step.Mark != "":
			if err := mark(step.Mark); err != nil {
				return err
			}
		case step.Await != "":
			if err := await(ctx, step.Await, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *pyHost) call(ctx context.Context, step Step) {
	subtype, field := map[string]string{
		"interrupt": "interrupt", "setModel": "set_model", "setPermissionMode": "set_permission_mode", "mcpServerStatus": "mcp_status",
	}[step.Call], map[string]string{"setModel": "model", "setPermissionMode": "mode"}[step.Call]
	req := map[string]any{"subtype": subtype}
	if field != "" && len(step.Args) > 0 {
		req[field] = step.Args[0]
	}
	result, err := h.request(ctx, req)
	switch {
	case err != nil:
		h.report.add("call", map[string]any{"method": step.Call, "error": err.Error()})
	case subtype == "mcp_status":
		h.report.add("call", map[string]any{"method": step.Call, "result": result["mcpServers"]})
	default:
		h.report.add("call", map[string]any{"method": step.Call, "result": nil}) // it returns nothing
	}
}

func (h *pyHost) write(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	_, err = h.conn.Write(append(data, '\n'))
	return err
}

func (h *pyHost) request(ctx context.Context, req map[string]any) (map[string]any, error) {
	answer := make(chan map[string]any, 1)
	h.mu.Lock()
	h.n++
	id := fmt.Sprintf("req_%d_%08x", h.n, h.n)
	h.waiting[id] = answer
	h.mu.Unlock()
	if err := h.write(map[string]any{"type": "control_request", "request_id": id, "request": req}); err != nil {
		return nil, err
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return nil, errors.New("the CLI ended before it answered")
		}
		if r["subtype"] == "error" {
			return nil, errors.New(text(r["error"]))
		}
		result, _ := r["response"].(map[string]any)
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// handle processes a line of the CLI.
func (h *pyHost) handle(ctx context.Context, line string) {
	var m map[string]any
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &m) != nil {
		return
	}
	id := text(m["request_id"])
	switch m["type"] {
	case "control_response":
		r, _ := m["response"].(map[string]any)
		h.mu.Lock()
		c := h.waiting[text(r["request_id"])]
		delete(h.waiting, text(r["request_id"]))
		h.mu.Unlock()
		if c != nil {
			c <- r
		}
	case "control_request":
		req, _ := m["request"].(map[string]any)
		running, cancel := context.WithCancel(ctx)
		h.mu.Lock()
		h.running[id] = cancel
		h.mu.Unlock()
		h.asked.Go(func() {
			defer cancel()
			answer, err := h.answer(running, req)
			h.mu.Lock()
			cancelled := h.running[id] == nil
			delete(h.running, id)
			h.mu.Unlock()
			if cancelled {
				return
			}
			response := map[string]any{"subtype": "success", "request_id": id, "response": answer}
			if err != nil {
				response = map[string]any{"subtype": "error", "request_id": id, "error": err.Error()}
			}
			h.write(map[string]any{"type": "control_response", "response": response})
		})
	case "control_cancel_request":
		h.mu.Lock()
		if cancel := h.running[id]; cancel != nil {
			cancel()
			delete(h.running, id)
		}
		h.mu.Unlock()
	case "keep_alive", "transcript_mirror":
	default:
		h.report.add("message", map[string]any{"message": m})
		h.in.put(m)
		if m["type"] == "result" {
			select {
			case h.results <- struct{}{}:
			default:
			}
		}
	}
}

// answer responds to a request of the CLI.
func (h *pyHost) answer(ctx context.Context, req map[string]any) (any, error) {
	switch req["subtype"] {
	case "can_use_tool":
		tool := text(req["tool_name"])
		h.report.add("canUseTool", map[string]any{"tool": tool, "input": req["input"], "context": req})
		rule := h.rules.useRule(tool)
		if err := rule.behave(ctx, "canUseTool", h.report); err != nil {
			return nil, err
		}
		answer := map[string]any{"behavior": "allow"}
		if rule.Answer != nil {
			if err := json.Unmarshal(rule.Answer, &answer); err != nil {
				return nil, err
			}
		}
		if answer["behavior"] == "allow" && answer["updatedInput"] == nil {
			answer["updatedInput"] = req["input"]
		}
		return answer, nil
	case "hook_callback":
		for i, hook := range h.hooks {
			if fmt.Sprintf("hook_%d", i) != req["callback_id"] {
				continue
			}
			h.report.add("hook", map[string]any{"name": hook.event, "input": req["input"], "toolUseID": req["tool_use_id"]})
			if !hook.left.use() {
				return map[string]any{}, nil
			}
			if err := hook.rule.behave(ctx, "hook", h.report); err != nil {
				return nil, err
			}
			if hook.rule.Output == nil {
				return map[string]any{}, nil
			}
			return hook.rule.Output, nil
		}
		return nil, fmt.Errorf("no hook callback has the id %v", req["callback_id"])
	case "mcp_message":
		message, _ := req["message"].(map[string]any)
		return map[string]any{"mcp_response": h.mcp(ctx, text(req["server_name"]), message)}, nil
	}
	return nil, fmt.Errorf("the control request subtype %v is not supported", req["subtype"])
}

// mcp responds like an MCP server that runs in the host.
func (h *pyHost) mcp(ctx context.Context, server string, m map[string]any) any {
	fail := func(code int, why string) any {
		return map[string]any{"jsonrpc": "2.0", "id": m["id"], "error": map[string]any{"code": code, "message": why}}
	}
	tools, ok := h.job.Tools[server]
	if !ok {
		return fail(-32601, "there is no server "+server)
	}
	params, _ := m["params"].(map[string]any)
	var result any
	switch m["method"] {
	case "initialize":
		result = map[string]any{"protocolVersion": "2024-11-05", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": server, "version": "1.0.0"}}
	case "tools/list":
		list := []any{}
		for _, rule := range tools {
			description := rule.Description
			if description == "" {
				description = rule.Name
			}
			one := map[string]any{"name": rule.Name, "description": description, "inputSchema": rule.schema()}
			if rule.Annotations != nil {
				one["annotations"] = rule.Annotations
			}
			list = append(list, one)
		}
		result = map[string]any{"tools": list}
	case "tools/call":
		for _, rule := range tools {
			if rule.Name != params["name"] {
				continue
			}
			h.report.add("tool", map[string]any{"server": server, "name": rule.Name, "args": params["arguments"]})
			if err := rule.behave(ctx, "tool", h.report); err != nil {
				result = map[string]any{"content": []any{map[string]any{"type": "text", "text": err.Error()}}, "isError": true}
			} else {
				result = rule.result()
			}
		}
		if result == nil {
			return fail(-32602, "there is no such tool")
		}
	default:
		if m["id"] == nil {
			return map[string]any{"jsonrpc": "2.0", "result": map[string]any{}}
		}
		return fail(-32601, fmt.Sprintf("there is no method %v", m["method"]))
	}
	return map[string]any{"jsonrpc": "2.0", "id": m["id"], "result": result}
}
