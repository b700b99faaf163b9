package engine

import (
	"encoding/json"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/wire"
)

// permissions hold what calls may do, and in which directories. The owner of the conversation
// changes them; other goroutines read the view.
type permissions struct {
	host       Host
	mode       wire.PermissionMode
	modeBefore wire.PermissionMode // the mode before plan mode
	policy     *policy.Policy
	self       *crew.Narrowing // limits of its agent, if it runs as one and is not a subagent

	allowBypass bool                           // see [Config]
	fixedAllows bool                           // see [Config]
	noPrompts   bool                           // see [Config]
	serverModes map[string]wire.PermissionMode // see SetServerMode
	initExtra   map[string]json.RawMessage     // members of init about permissions

	start  *tool.Env // environment in which the conversation starts
	rec    *recorder.Recorder
	log    *slog.Logger
	others func(*call.View) // sets the members of a view that are not about permissions
	view   atomic.Pointer[call.View]
}

// publish makes the owner's changes visible to other goroutines.
func (c *permissions) publish() {
	env := c.start
	if old := c.view.Load(); old != nil {
		env = old.Env
	}
	c.publishEnv(env)
}

// publishEnv is like publish, and also replaces the environment of later calls.
func (c *permissions) publishEnv(env *tool.Env) {
	var hiding policy.Request
	if old := c.view.Load(); old != nil && slices.Equal(old.Env.Roots, env.Roots) && slices.Equal(old.Env.Outer, env.Outer) {
		hiding = old.Hiding
	} else {
		roots, _ := env.Judged()
		hiding = policy.Request{Roots: roots, Home: env.Home, Resolved: files.Targets(env, nil)}
	}
	v := &call.View{Host: c.host, Mode: c.mode, Policy: c.policy, Env: env, Hiding: hiding, ServerModes: c.serverModes}
	c.others(v)
	if c.self != nil {
		n := c.self.Policy()
		v.Self = &n
	}
	c.view.Store(v)
}

// Mode returns the permission mode.
func (c *permissions) Mode() wire.PermissionMode { return c.mode }

// SetMode changes the permission mode and emits the change.
func (c *permissions) SetMode(mode wire.PermissionMode) { c.SetModeFor(mode, func() {}) }

// SetModeFor is SetMode on request: it calls respond, which sends the response, when the mode is in
// effect, and emits the change after it.
func (c *permissions) SetModeFor(mode wire.PermissionMode, respond func()) {
	if mode == c.mode {
		respond()
		return
	}
	if mode == wire.ModePlan {
		c.modeBefore = c.mode
	}
	c.mode = mode
	c.publish()
	respond()
	c.rec.Emit(&wire.Status{PermissionMode: mode})
}

// leavePlan restores the mode from before plan mode.
func (c *permissions) leavePlan() {
	if c.mode != wire.ModePlan {
		return
	}
	back := c.modeBefore
	if back == "" || back == wire.ModePlan {
		back = wire.ModeDefault
	}
	c.SetMode(back)
}

// Apply applies a permission update of the host.
func (c *permissions) Apply(u *wire.PermissionUpdate) {
	defer c.publish()
	switch u.Type {
	case wire.UpdateSetMode:
		mode := u.Mode
		switch mode {
		case wire.ModeManual:
			mode = wire.ModeDefault
		case wire.ModeDefault, wire.ModeAcceptEdits, wire.ModePlan, wire.ModeDontAsk, wire.ModeAuto:
		case wire.ModeBypassPermissions:
			if !c.allowBypass {
				return
			}
		default:
			return // unknown mode
		}
		c.SetMode(mode)
	case wire.UpdateAddRules, wire.UpdateReplaceRules, wire.UpdateRemoveRules:
		if c.fixedAllows && u.Behavior == wire.BehaviorAllow && u.Type != wire.UpdateRemoveRules {
			return // this call may be allowed, but not later ones
		}
		c.policy.Update(u)
	case wire.UpdateAddDirectories:
		env := c.view.Load().Env
		roots := slices.Clone(env.Roots)
		for _, d := range u.Directories {
			if filepath.IsAbs(d) && !slices.Contains(roots, filepath.Clean(d)) {
				roots = append(roots, filepath.Clean(d))
				files.Pin(env, filepath.Clean(d))
			}
		}
		c.publishEnv(env.With(roots, env.Environ))
	case wire.UpdateRemoveDirectories:
		env := c.view.Load().Env
		first := true // the working directory stays
		c.publishEnv(env.With(slices.DeleteFunc(slices.Clone(env.Roots), func(d string) bool {
			gone := !first && slices.Contains(u.Directories, d)
			first = false
			return gone
		}), env.Environ))
	}
}

// SetEnviron changes the environment of commands that start from now on.
func (c *permissions) SetEnviron(vars map[string]string) {
	changes := map[string]*string{}
	for k, v := range vars {
		changes[k] = &v
	}
	c.ChangeEnviron(changes)
}

// ChangeEnviron is like SetEnviron, but removes variables whose value is nil.
func (c *permissions) ChangeEnviron(changes map[string]*string) {
	env := c.view.Load().Env
	environ := slices.Clone(env.Environ)
	for k, v := range changes {
		environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, k+"=") })
		if v != nil {
			environ = append(environ, k+"="+*v)
		}
	}
	c.publishEnv(env.With(env.Roots, environ))
}

// Rules are the permissions that can change while a conversation runs.
type Rules struct {
	// Rules replace the present rules, except those for which Keep returns true.
	Rules       []policy.Rule
	Keep        func(policy.Rule) bool
	AllowBypass bool // see [Config]; if false, ends bypassPermissions
	FixedAllows bool // see [Config]
	InitExtra   map[string]json.RawMessage
}

// SetRules changes the rules, also for running subagents.
func (c *permissions) SetRules(r Rules) {
	c.policy.Replace(r.Rules, r.Keep)
	c.allowBypass, c.fixedAllows, c.initExtra = r.AllowBypass, r.FixedAllows, r.InitExtra
	if c.mode == wire.ModeBypassPermissions && !r.AllowBypass {
		c.SetMode(wire.ModeDefault)
	}
	c.publish()
}

// Rules returns the permission rules that apply.
func (c *permissions) Rules() []policy.Rule { return c.policy.Rules() }

// Roots returns the directories that the conversation may work in. It may be called from any
// goroutine.
func (c *permissions) Roots() []string { return slices.Clone(c.view.Load().Env.Roots) }

// SetServerMode limits what the permission mode allows for the tools of an MCP server, by its
// name in the names of its tools. It can only narrow the mode. Empty removes the limit.
func (c *permissions) SetServerMode(server string, mode wire.PermissionMode) {
	modes := maps.Clone(c.serverModes)
	if modes == nil {
		modes = map[string]wire.PermissionMode{}
	}
	if modes[server] = mode; mode == "" {
		delete(modes, server)
	}
	c.serverModes = modes
	c.publish()
}

// commandLayer is the layer of rules that a command or skill adds for its turn.
const commandLayer policy.Layer = "command"

// commandRules returns the rules of a command or skill. They have an effect only if its file is
// trusted.
func (c *permissions) commandRules(name, file string, tools []string) []policy.Rule {
	rules, err := policy.ParseList(strings.Join(tools, ", "), wire.BehaviorAllow, policy.Source{Layer: commandLayer, File: file})
	if err != nil {
		c.log.Warn("the allowed tools of a command cannot be read", "command", name, "error", err)
		return nil
	}
	return rules
}

// addCommandRules adds the allow rules of a command or skill for the turn.
func (c *permissions) addCommandRules(cmd *project.Command) {
	if cmd != nil && cmd.Trusted {
		c.policy.Add(c.commandRules(cmd.Name, cmd.Path, cmd.AllowedTools)...)
	}
}

// revoke removes the rules that grant added.
func (c *permissions) revoke() {
	c.policy.Update(&wire.PermissionUpdate{Type: wire.UpdateReplaceRules, Behavior: wire.BehaviorAllow, Destination: wire.PermissionDestination(commandLayer)})
}

// unseen returns the tools whose calls the host's permission callback is never asked
// about, because a rule or the mode decides all of them.
func (c *permissions) unseen(tools []tool.Tool) []string {
	if c.noPrompts || !c.view.Load().Host.CanAsk() {
		return nil // no permission is requested at all
	}
	rules := c.policy.Rules()
	var unseen []string
	for _, t := range tools {
		name := t.Spec().Name
		if slices.Contains(QuestionTools(), name) || slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Behavior == wire.BehaviorAsk && r.NamesTool(name) }) {
			continue
		}
		whole := slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Content == "" && r.NamesTool(name) })
		if whole || c.mode == wire.ModeBypassPermissions || c.mode == wire.ModeDontAsk {
			unseen = append(unseen, name)
		}
	}
	return unseen
}
