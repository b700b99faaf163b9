package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/parley-go/parley/internal/spelling"
)

// Settings is the sandbox object of settings files and SDKs. Names and meanings are the
// official ones; additions are marked as such. The zero value is a disabled sandbox.
type Settings struct {
	Enabled bool `json:"enabled,omitempty"`
	// FailIfUnavailable prevents commands from running if there is no sandbox, or if a
	// restriction that these settings name explicitly cannot be enforced. Nil means
	// true.
	FailIfUnavailable *bool `json:"failIfUnavailable,omitempty"`
	// AutoAllowBash runs commands inside the sandbox without asking for permission.
	AutoAllowBash bool `json:"autoAllowBashIfSandboxed,omitempty"`
	// AllowUnsandboxed lets the model request that a command runs outside. Each one
	// needs permission. Unlike in the official CLI, the default is off.
	AllowUnsandboxed bool `json:"allowUnsandboxedCommands,omitempty"`
	// Excluded are commands that run outside, such as "docker *". It applies only to a
	// command that consists of nothing else.
	Excluded []string `json:"excludedCommands,omitempty"`
	// NestedNamespaces lets commands create their own user namespaces.
	NestedNamespaces bool   `json:"allowNestedUserNamespaces,omitempty"`
	BwrapPath        string `json:"bwrapPath,omitempty"`

	Network     Network     `json:"network,omitzero"`
	Filesystem  Filesystem  `json:"filesystem,omitzero"`
	Credentials Credentials `json:"credentials,omitzero"`

	ignored []string // members that have no effect here
}

// Network configures what commands can reach. Anything that is not named cannot be
// reached.
type Network struct {
	// AllowedDomains are names that can be reached through the proxy: a name, a name
	// with a port, "*.example.com" for the names below one, or "*". An empty list means
	// no network.
	AllowedDomains []string `json:"allowedDomains,omitempty"`
	DeniedDomains  []string `json:"deniedDomains,omitempty"` // takes precedence
	// AllowedAddresses are private addresses ("10.0.0.0/8") that an allowed name may
	// resolve to. This is an addition: other private addresses are denied when they are
	// dialled.
	AllowedAddresses []netip.Prefix `json:"allowedAddresses,omitempty"`
	// AllUnixSockets lets commands open Unix sockets, which bypass everything else if a
	// server listens on a reachable one.
	AllUnixSockets bool `json:"allowAllUnixSockets,omitempty"`
	// HTTPProxyPort is the port on this machine of a proxy to use instead of ours. That
	// proxy then decides what can be reached.
	HTTPProxyPort int `json:"httpProxyPort,omitempty"`
}

// Filesystem configures what commands can read and write in addition to the working
// directories. Paths are absolute, below "~/", or relative to where the conversation
// started; denied ones may contain the wildcards *, ** and ?.
type Filesystem struct {
	AllowWrite []string `json:"allowWrite,omitempty"`
	DenyWrite  []string `json:"denyWrite,omitempty"` // takes precedence over AllowWrite
	DenyRead   []string `json:"denyRead,omitempty"`
	AllowRead  []string `json:"allowRead,omitempty"` // takes precedence over DenyRead
	Disabled   bool     `json:"disabled,omitempty"`  // file access is not confined at all
}

// Credentials are files and variables that commands must not see.
type Credentials struct {
	Files   []CredentialFile `json:"files,omitempty"`
	EnvVars []CredentialVar  `json:"envVars,omitempty"`
}

// A CredentialFile is a file that is not readable inside. The mode mask is enforced as
// deny, which is stricter.
type CredentialFile struct {
	Path string `json:"path"`
	Mode string `json:"mode,omitempty"`
}

// A CredentialVar is an environment variable that is removed inside. The mode mask is
// enforced as deny, which is stricter. The mode allow, an addition, keeps a variable
// that looks like a credential.
type CredentialVar struct {
	Name string `json:"name"`
	Mode string `json:"mode,omitempty"`
}

// noEffect are members that have no meaning on this system or always apply.
var noEffect = []string{"$schema", "allowAppleEvents", "socatPath", "ripgrep", "ignoreViolations", "enableWeakerNestedSandbox", "enableWeakerNetworkIsolation"}

// Parse parses the sandbox member of settings. Nil, null and {} mean a disabled
// sandbox. Unknown members are kept for the report.
func Parse(raw json.RawMessage) (*Settings, error) {
	s := &Settings{}
	if len(bytes.TrimSpace(raw)) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(raw, s); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return nil, fmt.Errorf("the sandbox settings cannot be read: %s cannot be a %s", typ.Field, typ.Value)
		}
		return nil, fmt.Errorf("the sandbox settings cannot be read: %w", err)
	}
	for _, c := range s.Credentials.Files {
		if c.Path == "" || !slices.Contains([]string{"", "deny", "mask"}, c.Mode) {
			return nil, fmt.Errorf("the sandbox settings cannot be read: credentials.files has a path %q with the mode %q; it must be deny or mask", c.Path, c.Mode)
		}
	}
	for _, c := range s.Credentials.EnvVars {
		if c.Name == "" || !slices.Contains([]string{"", "deny", "mask", "allow"}, c.Mode) {
			return nil, fmt.Errorf("the sandbox settings cannot be read: credentials.envVars has a name %q with the mode %q; it must be deny, mask or allow", c.Name, c.Mode)
		}
	}
	if p := s.Network.HTTPProxyPort; p < 0 || p > 65535 {
		return nil, fmt.Errorf("the sandbox settings cannot be read: %d is not a port for network.httpProxyPort", p)
	}
	s.ignored = unknown(raw)
	return s, nil
}

// unknown lists the members of settings that have no effect.
func unknown(raw json.RawMessage) []string {
	var out []string
	known := map[string]any{"": Settings{}, "network.": Network{}, "filesystem.": Filesystem{}, "credentials.": Credentials{}}
	for prefix, v := range known {
		var given map[string]json.RawMessage
		part := raw
		if prefix != "" {
			var whole map[string]json.RawMessage
			json.Unmarshal(raw, &whole)
			part = whole[strings.TrimSuffix(prefix, ".")]
		}
		json.Unmarshal(part, &given)
		names := members(v)
		for name, value := range given {
			text := string(bytes.TrimSpace(value))
			if !slices.Contains(names, name) && !slices.Contains(noEffect, name) && !slices.Contains([]string{"null", "false", "[]", "{}"}, text) {
				if like := spelling.Closest(name, names); like != "" {
					name += " (did you mean " + like + "?)"
				}
				out = append(out, prefix+name)
			}
		}
	}
	for _, c := range []string{"network.strictAllowlist", "network.allowLocalBinding", "network.allowMachLookup"} {
		// The first always applies; the second does too, in a separate network
		// namespace.
		out = slices.DeleteFunc(out, func(s string) bool { return s == c })
	}
	slices.Sort(out)
	return out
}

// Misspelled lists the members without effect whose names are close to another one, which may be the switch "enabled".
func (s *Settings) Misspelled() []string {
	return slices.DeleteFunc(slices.Clone(s.ignored), func(name string) bool { return !strings.HasSuffix(name, "?)") })
}

// mustHave reports whether nothing may run without the configured restrictions.
func (s *Settings) mustHave() bool { return s.FailIfUnavailable == nil || *s.FailIfUnavailable }

// secret reports whether the name of a variable looks like a credential.
func (s *Settings) secret(name string) bool {
	for _, c := range s.Credentials.EnvVars {
		if c.Name == name {
			return c.Mode != "allow"
		}
	}
	upper := strings.ToUpper(name)
	for _, prefix := range []string{"ANTHROPIC_", "CLAUDE_CODE_OAUTH"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	for _, word := range []string{"SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "GOOGLE_APPLICATION_CREDENTIALS"} {
		if upper == word {
			return true
		}
	}
	for _, suffix := range []string{"API_KEY", "APIKEY", "TOKEN", "SECRET", "SECRET_KEY", "ACCESS_KEY", "ACCESS_KEY_ID", "PRIVATE_KEY", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"} {
		if upper == suffix || strings.HasSuffix(upper, "_"+suffix) {
			return true
		}
	}
	return false
}

// Environ returns an environment without variables that look like credentials, and in
// which git takes no optional locks.
func Environ(env []string) []string {
	var s Settings
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return s.secret(name)
	})
	debug := "goindex=0" // go list would fail because it cannot store the index of a module
	for _, kv := range env {
		if set, ok := strings.CutPrefix(kv, "GODEBUG="); ok && set != "" {
			debug = set + "," + debug
		}
	}
	return append(env, "GIT_OPTIONAL_LOCKS=0", "GODEBUG="+debug)
}

// Outside reports whether the settings run a command outside: it is one of
// [Settings.Excluded] and nothing else. A command with shell syntax, such as a quote, a
// variable or a second command, is not.
func (s *Settings) Outside(command string) bool {
	if strings.ContainsAny(command, "\x00\r\n;&|<>$`\\\"'(){}[]*?~#!^=") {
		return false
	}
	words := strings.Fields(command)
	for _, pattern := range s.Excluded {
		pattern = strings.TrimSpace(pattern)
		prefix, more := strings.CutSuffix(pattern, ":*")
		if !more {
			prefix, more = strings.CutSuffix(pattern, " *")
		}
		want := strings.Fields(prefix)
		if len(want) == 0 || strings.Contains(prefix, "*") || len(words) < len(want) || !slices.Equal(words[:len(want)], want) {
			continue
		}
		// A single name stands for the program with any arguments.
		if more || len(want) == 1 || len(words) == len(want) {
			return true
		}
	}
	return false
}
