package settings

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/wire"
)

// A Rule is a permission rule as it is written, such as "Bash(git diff:*)".
type Rule struct {
	Behavior wire.PermissionBehavior
	Text     string
	Origin
}

// Rules returns the rules that count: those that deny, those that ask, those that
// allow, the highest layer first.
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

// ManagedRulesOnly reports whether the administrator lets nobody else allow
// anything.
func (s *Settings) ManagedRulesOnly() bool {
	return s != nil && s.managed("allowManagedPermissionRulesOnly")
}

// Mode returns the permission mode to begin with, empty if no layer has one.
func (s *Settings) Mode() wire.PermissionMode {
	return wire.PermissionMode(s.String("permissions", "defaultMode"))
}

// BypassDisabled reports whether a layer, any of them, forbids the mode
// bypassPermissions.
func (s *Settings) BypassDisabled() bool {
	return s.String("permissions", "disableBypassPermissionsMode") == "disable"
}

// Directories returns more directories to work in, absolute. Relative paths are
// relative to the project.
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

// AgentEnv returns the environment variables that settings give the agent itself.
// None is from a project: a project must not say where requests go, or with what.
func (s *Settings) AgentEnv() map[string]string {
	return s.env(func(l *layer) bool { return !l.Layer.ofProject() })
}

// ManagedEnv returns the environment variables that the administrator of the machine
// gives the agent, whatever its environment is.
func (s *Settings) ManagedEnv() map[string]string {
	return s.env(func(l *layer) bool { return l.Layer == Managed })
}

// CommandEnv returns the environment variables that settings give commands and
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

// Decode reads a setting into a Go value. It reports whether there is one.
func (s *Settings) Decode(into any, names ...string) bool {
	raw, _ := s.Get(names...)
	return raw != nil && json.Unmarshal(raw, into) == nil
}
