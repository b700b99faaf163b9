package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// GoSDK is the driver that uses our SDK.
type GoSDK struct{}

// Name returns "go".
func (GoSDK) Name() string { return "go" }

// Drive runs the job: with [parley.Query] if there is one prompt, with a [parley.Client] if
// there are steps.
func (GoSDK) Drive(ctx context.Context, job *Job) ([]Event, error) {
	r := newReport()
	opts, err := goOptions(job, r)
	if err != nil {
		return nil, err
	}
	if job.Steps == nil {
		for m, err := range parley.Query(ctx, job.Prompt, opts) {
			if err != nil {
				err = goError(r, err)
			}
			if m != nil {
				goMessage(r, m)
			}
			if err != nil {
				break
			}
		}
	} else if err := converse(ctx, job, opts, r); err != nil {
		goError(r, err)
	}
	events := r.all()
	failed := false
	for _, e := range events {
		failed = failed || e.Kind() == "error"
	}
	r.add("end", map[string]any{"failed": failed})
	return r.all(), nil
}

func goMessage(r *report, m wire.Message) map[string]any {
	if bad, ok := m.(*wire.BadLine); ok {
		r.add("badLine", map[string]any{"text": string(bad.Text)})
		return nil
	}
	line, err := wire.Encode(m)
	if err != nil {
		goError(r, err)
		return nil
	}
	r.add("message", map[string]any{"message": json.RawMessage(line)})
	var v map[string]any
	if err := json.Unmarshal(line, &v); err != nil {
		goError(r, err)
	}
	return v
}

// goError reports an error. Only this SDK returns one for a blocked prompt: the official ones
// report only the result.
func goError(r *report, err error) error {
	var ended *parley.ResultError
	if errors.As(err, &ended) && ended.Outcome() == wire.OutcomeBlocked {
		return nil
	}
	r.add("error", map[string]any{"name": fmt.Sprintf("%T", err), "message": err.Error()})
	return err
}

// converse runs the steps of a conversation, then ends it.
func converse(ctx context.Context, job *Job, opts *parley.Options, r *report) (err error) {
	c, err := parley.Connect(ctx, opts)
	if err != nil {
		return err
	}
	in := newInbox()
	var reading, calls sync.WaitGroup
	var last error
	reading.Go(func() {
		defer in.end()
		for m, err := range c.Messages(ctx) {
			if err != nil {
				last = err
				return
			}
			in.put(goMessage(r, m))
		}
	})
	defer func() {
		calls.Wait()
		if closing := c.Close(); err == nil {
			err = closing
		}
		reading.Wait()
		if err == nil && !errors.Is(last, parley.ErrClosed) {
			err = last
		}
	}()
	for _, step := range job.Steps {
		switch {
		case step.Send != nil:
			prompt := map[string]any{"type": "user", "parent_tool_use_id": nil, "message": map[string]any{"role": "user", "content": step.Send}}
			for key, v := range step.Fields {
				prompt[key] = v
			}
			data, err := json.Marshal(prompt)
			if err != nil {
				return err
			}
			var m wire.User
			if err := json.Unmarshal(data, &m); err != nil {
				return err
			}
			if err := c.Send(ctx, &m); err != nil {
				return err
			}
		case step.Until != nil:
			if err := in.until(ctx, step.Until); err != nil {
				return err
			}
		case step.Call != "":
			call := func() {
				result, err := goCall(ctx, c, step)
				if err != nil {
					r.add("call", map[string]any{"method": step.Call, "error": err.Error()})
				} else {
					r.add("call", map[string]any{"method": step.Call, "result": result})
				}
			}
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
		default:
			return fmt.Errorf("a step that says nothing: %+v", step)
		}
	}
	return nil
}

// goCall calls the equivalent of a method of the TypeScript SDK.
func goCall(ctx context.Context, c *parley.Client, step Step) (any, error) {
	arg := func(i int, v any) error {
		if i >= len(step.Args) {
			return nil
		}
		return json.Unmarshal(step.Args[i], v)
	}
	var s string
	switch step.Call {
	case "interrupt":
		return c.Interrupt(ctx)
	case "setModel":
		return after(arg(0, &s), func() (any, error) { return c.SetModel(ctx, s) })
	case "setPermissionMode":
		return after(arg(0, &s), func() (any, error) { return c.SetPermissionMode(ctx, wire.PermissionMode(s)) })
	case "setMaxThinkingTokens":
		var n int64
		return after(arg(0, &n), func() (any, error) { return nil, c.SetMaxThinkingTokens(ctx, n) })
	case "mcpServerStatus":
		return c.MCPStatus(ctx)
	case "reconnectMcpServer":
		return after(arg(0, &s), func() (any, error) { return nil, c.ReconnectMCPServer(ctx, s) })
	case "toggleMcpServer":
		var on bool
		return after(errors.Join(arg(0, &s), arg(1, &on)), func() (any, error) { return nil, c.ToggleMCPServer(ctx, s, on) })
	case "setMcpServers":
		var servers map[string]*wire.MCPServerConfig
		return after(arg(0, &servers), func() (any, error) { return c.SetMCPServers(ctx, servers) })
	case "getContextUsage":
		return c.ContextUsage(ctx)
	case "rewindFiles":
		var opts struct{ DryRun bool }
		return after(errors.Join(arg(0, &s), arg(1, &opts)), func() (any, error) { return c.RewindFiles(ctx, s, opts.DryRun) })
	case "stopTask":
		return after(arg(0, &s), func() (any, error) { return nil, c.StopTask(ctx, s) })
	case "backgroundTasks":
		return after(arg(0, &s), func() (any, error) { return nil, c.Call(ctx, &wire.BackgroundTasks{ToolUseID: s}, nil) })
	case "initializationResult":
		return c.InitializeResponse()
	case "applyFlagSettings":
		var settings map[string]json.RawMessage
		return after(arg(0, &settings), func() (any, error) { return nil, c.ApplySettings(ctx, settings) })
	}
	if req := goRequest(step.Call, arg); req != nil {
		var raw json.RawMessage
		return after(c.Call(ctx, req, &raw), func() (any, error) { return raw, nil })
	}
	return nil, fmt.Errorf("the driver has no method %s", step.Call)
}

// goRequest returns the control request that a method of the TypeScript SDK sends, or the
// argument of "control", for which no SDK has a method; nil if there is none.
func goRequest(method string, arg func(int, any) error) wire.Request {
	switch method {
	case "readFile":
		r := &wire.ReadFile{}
		var opts struct {
			MaxBytes int64
			Encoding string
		}
		if errors.Join(arg(0, &r.Path), arg(1, &opts)) == nil {
			r.MaxBytes, r.Encoding = opts.MaxBytes, opts.Encoding
			return r
		}
	case "updateSettings":
		if r := (&wire.UpdateSettings{}); errors.Join(arg(0, &r.Source), arg(1, &r.Settings)) == nil {
			return r
		}
	case "setMcpPermissionModeOverride":
		if r := (&wire.SetMCPPermissionModeOverride{}); errors.Join(arg(0, &r.ServerName), arg(1, &r.Mode)) == nil {
			return r
		}
	case "control":
		var raw json.RawMessage
		var of struct{ Subtype string }
		if arg(0, &raw) == nil && json.Unmarshal(raw, &of) == nil {
			return &wire.UnknownRequest{Name: of.Subtype, Raw: raw}
		}
	}
	return nil
}

func after(err error, f func() (any, error)) (any, error) {
	if err != nil {
		return nil, err
	}
	return f()
}

// goOptions returns the options of a job, with callbacks that report their calls.
func goOptions(job *Job, r *report) (*parley.Options, error) {
	o := &parley.Options{Path: job.CLI, Env: job.Env}
	if job.Stderr {
		o.Stderr = func(line string) { r.add("stderr", map[string]any{"data": line}) }
	}
	o.OnWarning = func(err error) { r.add("warning", map[string]any{"message": err.Error()}) }
	for name, raw := range job.Options {
		if err := goOption(o, name, raw); err != nil {
			return nil, fmt.Errorf("option %s: %w", name, err)
		}
	}
	if job.CanUseTool != nil {
		answers := &rules{list: append([]Rule(nil), job.CanUseTool...)}
		o.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
			r.add("canUseTool", map[string]any{"tool": req.ToolName, "input": req.Input, "context": req})
			rule := answers.useRule(req.ToolName)
			if err := rule.behave(ctx, "canUseTool", r); err != nil {
				return nil, err
			}
			if rule.Answer == nil {
				return parley.Allow(), nil
			}
			var answer wire.PermissionResult
			return &answer, json.Unmarshal(rule.Answer, &answer)
		}
	}
	for _, event := range slices.Sorted(maps.Keys(job.Hooks)) {
		for _, rule := range job.Hooks[event] {
			matcher := ""
			if rule.Matcher != nil {
				matcher = *rule.Matcher
			}
			left := newQuota(rule)
			hook := parley.OnEvent(wire.HookEvent(event), matcher, func(ctx context.Context, in wire.HookInput) (*wire.HookOutput, error) {
				r.add("hook", map[string]any{"name": event, "input": in})
				if !left.use() {
					return nil, nil
				}
				if err := rule.behave(ctx, "hook", r); err != nil {
					return nil, err
				}
				if rule.Output == nil {
					return nil, nil
				}
				var out wire.HookOutput
				return &out, json.Unmarshal(rule.Output, &out)
			})
			if rule.Timeout != nil {
				hook.Timeout = time.Duration(*rule.Timeout * float64(time.Second))
			}
			o.Hooks = append(o.Hooks, hook)
		}
	}
	for name, tools := range job.Tools {
		server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1.0.0"}, nil)
		for _, rule := range tools {
			tool := &mcp.Tool{Name: rule.Name, Description: rule.Name, InputSchema: rule.schema()}
			if rule.Description != "" {
				tool.Description = rule.Description
			}
			if rule.Annotations != nil {
				if err := json.Unmarshal(rule.Annotations, &tool.Annotations); err != nil {
					return nil, err
				}
			}
			mcp.AddTool(server, tool, func(ctx context.Context, req *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
				r.add("tool", map[string]any{"server": name, "name": rule.Name, "args": req.Params.Arguments})
				if err := rule.behave(ctx, "tool", r); err != nil {
					return nil, nil, err
				}
				var result mcp.CallToolResult
				return &result, nil, json.Unmarshal(rule.result(), &result)
			})
		}
		if o.ToolServers == nil {
			o.ToolServers = map[string]*mcp.Server{}
		}
		o.ToolServers[name] = server
	}
	if rule := job.Elicitation; rule != nil {
		o.OnElicitation = func(ctx context.Context, req *wire.Elicitation) (*wire.ElicitResult, error) {
			r.add("elicitation", map[string]any{"request": req})
			if err := rule.behave(ctx, "elicitation", r); err != nil {
				return nil, err
			}
			if rule.Answer == nil {
				return &wire.ElicitResult{Action: "decline"}, nil
			}
			var answer wire.ElicitResult
			return &answer, json.Unmarshal(rule.Answer, &answer)
		}
	}
	return o, nil
}

// goOption sets the equivalent of an option of the TypeScript SDK.
func goOption(o *parley.Options, name string, raw json.RawMessage) error {
	set := func(v any) error { return json.Unmarshal(raw, v) }
	plain := map[string]any{
		"model": &o.Model, "effort": &o.Effort, "tools": &o.Tools, "allowedTools": &o.AllowedTools, "disallowedTools": &o.DisallowedTools,
		"mcpServers": &o.MCPServers, "strictMcpConfig": &o.StrictMCPConfig, "agents": &o.Agents, "permissionMode": &o.PermissionMode,
		"allowDangerouslySkipPermissions": &o.AllowBypass, "cwd": &o.Cwd, "additionalDirectories": &o.AddDirs, "settingSources": &o.SettingSources,
		"settings": &o.Settings, "resume": &o.Resume, "continue": &o.Continue, "forkSession": &o.Fork, "title": &o.Title, "sessionId": &o.SessionID, "resumeSessionAt": &o.ResumeAt,
		"maxTurns": &o.MaxTurns, "maxBudgetUsd": &o.MaxBudgetUSD, "includePartialMessages": &o.PartialMessages, "enableFileCheckpointing": &o.Checkpoints,
	}
	if v := plain[name]; v != nil {
		return set(v)
	}
	switch name {
	case "fallbackModel":
		o.FallbackModels = make([]string, 1)
		return set(&o.FallbackModels[0])
	case "systemPrompt":
		if set(&o.SystemPrompt) == nil {
			return nil
		}
		var preset struct{ Type, Preset, Append string }
		err := set(&preset)
		o.KeepSystemPrompt, o.AppendSystemPrompt = true, preset.Append
		return err
	case "outputFormat":
		var format struct{ Schema json.RawMessage }
		err := set(&format)
		o.OutputSchema = format.Schema
		return err
	case "extraArgs":
		var args map[string]*string
		if err := set(&args); err != nil {
			return err
		}
		o.ExtraArgs = map[string]string{}
		for flag, v := range args {
			o.ExtraArgs[flag] = ""
			if v != nil {
				o.ExtraArgs[flag] = *v
			}
		}
		return nil
	}
	return errors.New("the driver does not know it")
}
