package settings

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/wire"
)

// A Rule is a permission rule as written, such as "Bash(git diff:*)".
type Rule struct {
	Behavior wire.PermissionBehavior
	Text     string
	Origin
}

// Rules returns the rules that apply: deny rules, then ask rules, then allow rules,
// each with the highest layer first.
func (s *Settings) Rules() []Rule {
	if s == nil {
		return nil
	}
	var rules []Rule
	managedOnly := s.ManagedRulesOnly()
	for _, b := range []wire.PermissionBehavior{wire.BehaviorDeny, wire.BehaviorAsk, wire.BehaviorAllow} {
		for _, l := range slices.Backward(s.layers) {
			v := l.active.Get("permissions", string(b))
			if v == nil || managedOnly && b == wire.BehaviorAllow && l.Layer != Managed {
				continue
			}
			for _, item := range v.items {
				if text, ok := item.text(); ok {
					rules = append(rules, Rule{b, text, l.at(item)})
				}
			}
		}
	}
	return rules
}

// ManagedRulesOnly reports whether only the administrator's allow rules apply.
func (s *Settings) ManagedRulesOnly() bool {
	return s != nil && s.managed("allowManagedPermissionRulesOnly")
}

// Mode returns the initial permission mode, or "" if no layer sets one.
func (s *Settings) Mode() wire.PermissionMode {
	return wire.PermissionMode(s.String("permissions", "defaultMode"))
}

// BypassDisabled reports whether any layer disables the mode bypassPermissions.
func (s *Settings) BypassDisabled() bool {
	return s.String("permissions", "disableBypassPermissionsMode") == "disable"
}

// Directories returns additional working directories as absolute paths. Relative paths
// are relative to the project.
func (s *Settings) Directories() []string {
	var all []string
	for _, d := range s.List("permissions", "additionalDirectories") {
		if !filepath.IsAbs(d) {
			d = filepath.Join(s.opts.Dir, d)
		}
		all = append(all, filepath.Clean(d))
	}
	return all
}

// AgentEnv returns the environment variables that settings set for the agent itself.
// None comes from a project, which must not choose where requests go, or with which
// credentials.
func (s *Settings) AgentEnv() map[string]string {
	return s.env(func(l *layer) bool { return !l.Layer.ofProject() })
}

// ManagedEnv returns the environment variables that the administrator of the machine
// sets for the agent, overriding its environment.
func (s *Settings) ManagedEnv() map[string]string {
	return s.env(func(l *layer) bool { return l.Layer == Managed })
}

// CommandEnv returns the environment variables that settings set for commands and
// hooks.
func (s *Settings) CommandEnv() map[string]string { return s.env(func(*layer) bool { return true }) }

func (s *Settings) env(of func(*layer) bool) map[string]string {
	vars := map[string]string{}
	if s == nil {
		return vars
	}
	for _, l := range s.layers {
		env := l.active.Get("env")
		if env == nil || !of(l) {
			continue
		}
		for _, n := range env.names {
			if text, ok := env.members[n].text(); ok {
				vars[n] = text
			} else if raw := env.members[n].Raw(); string(raw) != "null" {
				vars[n] = string(raw)
			}
		}
	}
	return vars
}

// Decode decodes a setting into a Go value. It reports whether there is one.
func (s *Settings) Decode(into any, names ...string) bool {
	raw, _ := s.Get(names...)
	return raw != nil && json.Unmarshal(raw, into) == nil
}
