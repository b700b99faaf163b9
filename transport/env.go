package transport

import (
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// An Environment describes how to make an agent's environment from that of the host.
type Environment struct {
	// Inherited is the initial environment as "KEY=value", usually os.Environ().
	Inherited []string
	// Additions are the caller's own entries. They override everything but the version.
	// An entry without "=" removes that variable.
	Additions []string
	// Dir becomes PWD, made absolute, unless it is empty.
	Dir string
	// Version is the SDK's version, for CLAUDE_AGENT_SDK_VERSION. An agent relies on it
	// to identify its host, so no addition changes it. Empty means not set.
	Version string
	// Debug requests debug output from the agent: DEBUG=1.
	Debug bool
}

// Environ returns the environment, sorted by key and without duplicates; of two entries
// for one key the last counts. Keys are case-sensitive except on Windows.
//
// These inherited entries are not passed to the agent: NODE_OPTIONS, which is meant for
// another program; CLAUDECODE, which would make the agent believe that it runs inside
// another one; DEBUG, unless Debug is set; and the marks of another SDK in
// CLAUDE_CODE_ENTRYPOINT and CLAUDE_AGENT_SDK_VERSION.
func (e Environment) Environ() []string {
	vars := newVariables(foldEnv)
	for _, kv := range e.Inherited {
		vars.apply(kv)
	}
	for _, key := range []string{"NODE_OPTIONS", "CLAUDECODE", "DEBUG"} {
		vars.remove(key)
	}
	vars.set("CLAUDE_CODE_ENTRYPOINT", "sdk-go")
	if e.Debug {
		vars.set("DEBUG", "1")
	}
	if e.Dir != "" {
		dir := e.Dir
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		vars.set("PWD", dir)
	}
	for _, kv := range e.Additions {
		if _, _, ok := cutEnv(kv); !ok {
			vars.remove(kv)
			continue
		}
		vars.apply(kv)
	}
	vars.remove("CLAUDE_AGENT_SDK_VERSION")
	if e.Version != "" {
		vars.set("CLAUDE_AGENT_SDK_VERSION", e.Version)
	}
	return vars.list()
}

// foldEnv reports whether keys that differ only in case are the same.
const foldEnv = runtime.GOOS == "windows"

// variables is a mutable environment.
type variables struct {
	fold   bool              // keys that differ only in case are the same
	values map[string]string // folded key to "KEY=value"
}

func newVariables(fold bool) variables {
	return variables{fold: fold, values: make(map[string]string)}
}

func (v variables) key(k string) string {
	if v.fold {
		return strings.ToUpper(k)
	}
	return k
}

// apply sets the variable of an entry; it ignores an entry without a key.
func (v variables) apply(kv string) {
	if key, _, ok := cutEnv(kv); ok {
		v.values[v.key(key)] = kv
	}
}

func (v variables) set(key, value string) { v.values[v.key(key)] = key + "=" + value }

func (v variables) remove(key string) { delete(v.values, v.key(key)) }

func (v variables) get(key string) string {
	_, value, _ := cutEnv(v.values[v.key(key)])
	return value
}

func (v variables) list() []string {
	list := make([]string, 0, len(v.values))
	for _, key := range slices.Sorted(maps.Keys(v.values)) {
		list = append(list, v.values[key])
	}
	return list
}

// cutEnv splits an entry into key and value. Windows keeps the working directory of
// each drive under keys that begin with "=", so the first byte is never the separator.
func cutEnv(kv string) (key, value string, ok bool) {
	if kv == "" {
		return "", "", false
	}
	i := strings.IndexByte(kv[1:], '=')
	if i < 0 {
		return "", "", false
	}
	return kv[:i+1], kv[i+2:], true
}
