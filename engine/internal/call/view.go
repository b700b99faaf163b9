package call

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/checkpoint"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// A Host answers permission requests and runs hooks. Its methods are called from several
// goroutines.
type Host interface {
	// CanAsk reports whether somebody can answer permission requests.
	CanAsk() bool
	// Ask sends a permission request for a tool call. It returns when the request is
	// answered or ctx ends. It calls sent once the request has been sent.
	Ask(ctx context.Context, req *wire.CanUseTool, sent func()) (*wire.PermissionResult, error)
	// Hooks runs the hooks for an event whose matcher matches the subject, concurrently,
	// and returns their answers in the order of registration.
	Hooks(ctx context.Context, in wire.HookInput, subject, toolUseID string) []hook.Answer
}

// A View is the part of a conversation's state that calls and subagents read. It is
// immutable: the owner of the conversation publishes a new one after each change.
type View struct {
	Host           Host
	Mode           wire.PermissionMode
	Policy         *policy.Policy
	Self           *policy.Narrowing // limits of the agent that the conversation runs as; nil if it is none
	Env            *tool.Env         // with the current directories and environment
	Hiding         policy.Request    // decides whether a file must not be read: roots, home and targets
	Project        *project.Context
	NoInstructions bool
	Keeper         *checkpoint.Keeper             // nil if file contents are not recorded
	Forward        bool                           // the host receives the text of subagents
	ServerModes    map[string]wire.PermissionMode // of MCP servers that allow less than Mode
}

// Rules returns the rules that apply: those of the conversation, narrowed by the agent that
// it runs as.
func (v *View) Rules() *policy.Policy {
	if v.Self == nil {
		return v.Policy
	}
	return v.Policy.Narrow(*v.Self)
}

// Request returns the request for a policy to decide. It accesses the file system, so the
// owner of the conversation does not call it directly.
func (v *View) Request(env *tool.Env, tl tool.Tool, input json.RawMessage, access []tool.Access, resolved map[string]tool.Target) *policy.Request {
	if resolved == nil {
		resolved = files.Targets(env, access)
	}
	roots, bound := v.Env.Judged()
	req := &policy.Request{Tool: tl.Spec(), Access: access, Input: input, Mode: v.modeOf(tl), Roots: roots, Bound: bound, Cwd: env.Cwd(), Home: env.Home, Resolved: resolved}
	if env.Dir != "" {
		req.Readable = []string{filepath.Join(env.Dir, "tasks"), filepath.Join(env.Dir, "tool-results")}
	}
	return req
}

// modeOf returns the mode for calls of a tool.
func (v *View) modeOf(tl tool.Tool) wire.PermissionMode {
	return Narrowest(v.Mode, v.ServerModes[tl.Spec().Server])
}

// Narrowest returns the mode of an agent below its parent: its own mode if that allows no
// more than the parent's, and otherwise the parent's.
func Narrowest(parent, own wire.PermissionMode) wire.PermissionMode {
	if own == "" {
		return parent
	}
	switch parent {
	case wire.ModeBypassPermissions:
		switch own {
		case wire.ModeManual, wire.ModeDelegate:
			return wire.ModeDefault
		}
		return own
	case wire.ModeAuto:
		switch own {
		case wire.ModeBypassPermissions, wire.ModeAcceptEdits, wire.ModeAuto:
			return parent
		case wire.ModePlan, wire.ModeDontAsk:
			return own
		}
		return wire.ModeDefault
	case wire.ModeAcceptEdits:
		switch own {
		case wire.ModeBypassPermissions:
			return parent
		case wire.ModeManual, wire.ModeAuto, wire.ModeDelegate:
			return wire.ModeDefault
		}
		return own
	case wire.ModePlan, wire.ModeDontAsk:
		return parent
	}
	if own == wire.ModePlan || own == wire.ModeDontAsk {
		return own
	}
	return parent
}
