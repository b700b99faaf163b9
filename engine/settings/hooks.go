package settings

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-go/parley/wire"
)

// A Hook is a command that runs at an event.
type Hook struct {
	Event   wire.HookEvent
	Matcher string // matches tools, or other subjects; empty means all

	Kind    string   // if it is not a command: "prompt", "agent", "http" or "mcp_tool"
	Spec    *Spec    // if it is not a command and can be run
	Command string   // a command line for the shell, or a program if Args is set
	Args    []string // nil means that Command is a command line
	Shell   string   // "bash", "sh" or "powershell"; empty means the system's
	Timeout time.Duration
	// OnFailure is what happens when the hook fails, does not answer in time or answers with
	// malformed output: "block", "ask" or "continue". Empty means block for a hook that can
	// decide, and continue for others.
	OnFailure string
	Async     bool // nothing waits for it
	Rewake    bool // asynchronous; with exit status 2 its output is sent to the model
	Once      bool // it runs once in a session
	Status    string
	// If is a rule such as "Bash(git push:*)": the hook runs only for calls that may match it.
	// Empty means all.
	If string
	// Inactive means that the hook is not trusted: it does not run, and the calls that it guards
	// need permission.
	Inactive bool
	Origin
	value *Value
}

// A Spec describes a hook that is not a command.
type Spec struct {
	URL            string            `json:"url"`            // for "http": where the input is sent
	Headers        map[string]string `json:"headers"`        // for "http"
	AllowedEnvVars []string          `json:"allowedEnvVars"` // environment variables that Headers may name as $NAME
	Prompt         string            `json:"prompt"`         // for "prompt" and "agent": the condition for a model; $ARGUMENTS is the input
	Model          string            `json:"model"`          // for both; empty means a small one
	Server         string            `json:"server"`         // for "mcp_tool"
	Tool           string            `json:"tool"`           // for "mcp_tool"
	Input          json.RawMessage   `json:"input"`          // for "mcp_tool"; ${a.b} in a string is a member of the hook's input
}

// lacks returns the missing members that a hook of this kind requires, or "".
func (s *Spec) lacks(kind string) string {
	switch {
	case kind == "http" && s.URL == "":
		return "url"
	case (kind == "prompt" || kind == "agent") && s.Prompt == "":
		return "prompt"
	case kind == "mcp_tool" && (s.Server == "" || s.Tool == ""):
		return "server and tool"
	}
	return ""
}

// hookFields are the members that all kinds of hooks, or commands, have.
type hookFields struct {
	Command   *string  `json:"command"`
	Args      []string `json:"args"`
	Shell     string   `json:"shell"`
	Timeout   *float64 `json:"timeout"`
	OnFailure string   `json:"onFailure"`
	Async     bool     `json:"async"`
	Rewake    bool     `json:"asyncRewake"`
	Once      bool     `json:"once"`
	Status    string   `json:"statusMessage"`
}

// CanRun reports whether this version can run the hook.
func (h *Hook) CanRun() bool { return h.Command != "" || h.Spec != nil }

// Decides reports whether hooks of an event can prevent something before it happens.
func Decides(event wire.HookEvent) bool {
	switch event {
	case wire.EventPreToolUse, wire.EventPermissionRequest, wire.EventUserPromptSubmit, wire.EventUserPromptExpansion,
		wire.EventPreModelSwitch, wire.EventPreCompact:
		return true
	}
	return false
}

func (s *Settings) hooks() []Hook {
	if s == nil || s.managed("disableAllHooks") {
		return nil
	}
	managedOnly := s.managed("allowManagedHooksOnly")
	off := s.Bool("disableAllHooks")
	var all []Hook
	for _, l := range s.layers {
		if (managedOnly || off) && l.Layer != Managed {
			continue
		}
		hooks, _ := hooksOf(l, l.active)
		all = append(all, hooks...)
	}
	return all
}

// HooksIn parses the hooks in a file that is not a settings file, such as that of a plugin or an
// agent: {"hooks": …}. It returns none if the settings disable hooks. A hook without a command
// is of a kind that this version cannot run, and cannot deny anything.
func (s *Settings) HooksIn(file string, text []byte) ([]Hook, error) {
	if s == nil || s.managed("disableAllHooks") || s.managed("allowManagedHooksOnly") || s.Bool("disableAllHooks") {
		return nil, nil
	}
	l := &layer{Origin: Origin{Layer: User, File: file}}
	v, line, err := parse(text)
	if err != nil {
		l.Line = line
		return nil, &Error{l.Origin, "the hooks are not valid JSON: " + err.Error(), "Fix the file."}
	}
	return hooksOf(l, v)
}

// Guards returns the PreToolUse hooks in settings that do not run because they are not trusted.
func Guards(s *Settings) []Hook {
	if s == nil || s.managed("disableAllHooks") || s.managed("allowManagedHooksOnly") || s.Bool("disableAllHooks") {
		return nil
	}
	var all []Hook
	for _, l := range s.layers {
		if l.active == l.all {
			continue
		}
		active, _ := hooksOf(l, l.active)
		brought, _ := hooksOf(l, l.all)
		all = append(all, slices.DeleteFunc(brought, func(h Hook) bool {
			return slices.ContainsFunc(active, func(a Hook) bool { return a.value == h.value })
		})...)
	}
	return Guarding(all)
}

// Guarding returns the hooks that can deny a call, as inactive ones. Each guards at least the
// calls that it would guard if it ran.
func Guarding(hooks []Hook) []Hook {
	var all []Hook
	for _, h := range hooks {
		if h.Event == wire.EventPreToolUse && !h.Async && h.CanRun() {
			h.Inactive, h.Once = true, false
			all = append(all, h)
		}
	}
	return all
}

// Hooks returns the hooks that apply, lowest layer first.
func (s *Settings) Hooks() []Hook {
	return slices.DeleteFunc(s.hooks(), func(h Hook) bool { return !h.CanRun() })
}

// HooksNotRun returns the hooks that apply but that this version cannot run: they are not
// commands, and cannot deny anything.
func (s *Settings) HooksNotRun() []Hook {
	return slices.DeleteFunc(s.hooks(), func(h Hook) bool { return h.CanRun() })
}

// hooksOf parses the hooks of a layer.
func hooksOf(l *layer, in *Value) ([]Hook, error) {
	var all []Hook
	hooks := in.Get("hooks")
	if hooks == nil {
		return nil, nil
	}
	for _, event := range hooks.names {
		list := hooks.members[event]
		if list.kind() == "null" {
			continue
		}
		if !list.array {
			return nil, l.wrong(list, `Write a list of {"matcher": …, "hooks": [ … ]}.`, "hooks.%s is %s", event, list.kind())
		}
		for _, group := range list.items {
			matcher := ""
			if m := group.Get("matcher"); m != nil {
				var ok bool
				if matcher, ok = m.text(); !ok {
					return nil, l.wrong(m, "Write a string, such as \"Write|Edit\".", "the matcher of a %s hook is %s", event, m.kind())
				}
			}
			entries := group.Get("hooks")
			if entries == nil || !entries.array {
				return nil, l.wrong(group, `Write {"matcher": …, "hooks": [{"type": "command", "command": …}]}.`, "an entry of hooks.%s has no list of hooks", event)
			}
			for _, entry := range entries.items {
				h, err := hookOf(l, wire.HookEvent(event), matcher, entry)
				if err != nil {
					return nil, err
				}
				all = append(all, h)
			}
		}
	}
	return all, nil
}

func hookOf(l *layer, event wire.HookEvent, matcher string, v *Value) (Hook, error) {
	h := Hook{Event: event, Matcher: matcher, Origin: l.at(v), value: v}
	kind, _ := v.Get("type").text()
	if kind == "" && v.Get("command") != nil {
		kind = "command"
	}
	other := slices.Contains([]string{"http", "prompt", "agent", "mcp_tool"}, kind)
	if kind != "command" && !other && !Decides(event) {
		h.Kind = kind
		return h, nil // it cannot deny anything
	}
	if kind != "command" && !other {
		return h, l.wrong(v, "Use a hook of the type command, http, prompt, agent or mcp_tool, or leave it out.", "a %s hook is of the type %q, which this version does not run", event, kind)
	}
	if c := v.Get("if"); c != nil {
		var ok bool
		switch event {
		case wire.EventPreToolUse, wire.EventPostToolUse, wire.EventPostToolUseFailure, wire.EventPermissionRequest, wire.EventPermissionDenied:
			h.If, ok = c.text()
		}
		if !ok || h.If == "" {
			return h, l.wrong(c, "Write a rule such as \"Bash(git push:*)\", for an event of a tool, or leave it out.", "the condition (if) of a %s hook is malformed", event)
		}
	}
	var in hookFields
	if err := json.Unmarshal(v.Raw(), &in); err != nil {
		return h, l.wrong(v, "Fix it.", "a %s hook cannot be read: %v", event, err)
	}
	if other {
		h.Kind, h.Spec = kind, new(Spec)
		if err := json.Unmarshal(v.Raw(), h.Spec); err != nil {
			return h, l.wrong(v, "Correct it.", "a %s hook cannot be read: %v", event, err)
		}
		if missing := h.Spec.lacks(kind); missing != "" {
			return h, l.wrong(v, "Add it.", "a %s hook of the type %s has no %s", event, kind, missing)
		}
		in.Command = new(string)
	} else if in.Command == nil || *in.Command == "" {
		return h, l.wrong(v, "Write the command that it runs.", "a %s hook has no command", event)
	}
	h.Command, h.Args, h.Shell, h.Async, h.Rewake, h.Once, h.Status = *in.Command, in.Args, in.Shell, in.Async || in.Rewake, in.Rewake, in.Once, in.Status
	if in.Timeout != nil {
		if *in.Timeout <= 0 || *in.Timeout > 86400 {
			return h, l.wrong(v, "Write a number of seconds, at most a day.", "the timeout of a %s hook is %v", event, *in.Timeout)
		}
		h.Timeout = time.Duration(*in.Timeout * float64(time.Second))
	}
	if h.OnFailure = in.OnFailure; h.OnFailure == "allow" {
		h.OnFailure = "continue"
	}
	if !slices.Contains([]string{"", "block", "ask", "continue"}, h.OnFailure) {
		return h, l.wrong(v, "Use block, ask or continue.", "onFailure of a %s hook is %q", event, in.OnFailure)
	}
	if !slices.Contains([]string{"", "bash", "sh", "powershell"}, h.Shell) {
		return h, l.wrong(v, "Use bash or powershell.", "the shell of a %s hook is %q", event, h.Shell)
	}
	return h, nil
}

// Line describes what the hook runs, for people.
func (h *Hook) Line() string {
	switch h.Kind {
	case "http":
		return "POST " + h.Spec.URL
	case "prompt", "agent":
		return h.Spec.Prompt
	case "mcp_tool":
		return h.Spec.Server + "/" + h.Spec.Tool
	}
	if h.Args == nil {
		return h.Command
	}
	return fmt.Sprintf("%s %q", h.Command, h.Args)
}
