// Package tool defines the interface between the engine and its tools.
//
// A [Tool] has a name, a description and a schema for the model, and runs under a context. It does not
// depend on the protocol or the policy: before it runs, the policy has decided that it may, based on
// the [Access] that it declares. The built-in tools are in the packages below this one.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/parley-go/parley/wire"
)

// A Tool is an action that the model can request. It is safe for concurrent use and holds no state of
// a conversation, which is in the [Env].
type Tool interface {
	// Spec describes the tool. It never changes.
	Spec() *Spec
	// Access returns what a call would touch. The input is valid according to the schema. The policy
	// decides about each access; a tool that touches nothing returns none.
	Access(env *Env, input json.RawMessage) ([]Access, error)
	// Run runs the tool. An error becomes a result for the model; see [UseError]. When ctx ends, Run
	// returns soon, and leaves nothing running.
	Run(ctx context.Context, call *Call) (*Result, error)
}

// A PathTool is a tool whose input names files or directories.
type PathTool interface {
	Tool
	// Absolute returns a valid input with every path in it absolute and clean: relative paths are
	// relative to the working directory, ~ is the home directory, and a .. is removed with the element
	// before it, whatever that is on disk. Rules, hooks and hosts see this input, and Run opens
	// exactly the paths in it. Absolute is idempotent.
	Absolute(env *Env, input json.RawMessage) (json.RawMessage, error)
}

// A Checker is a tool that finds mistakes of the model before anybody is asked about the call.
type Checker interface {
	Tool
	// Check returns a [UseError] if the call cannot succeed. It changes nothing. It is called before
	// hooks and people see the call, and not for files that rules deny or that are outside of the
	// working directories.
	Check(ctx context.Context, call *Call) error
}

// A Spec describes a tool.
type Spec struct {
	Name        string
	Aliases     []string        // other accepted names
	RulesOf     string          // another tool whose permission rules also apply to this one
	Server      string          // for an MCP tool: the server, as in Name
	Description string          // for the model
	Schema      json.RawMessage // JSON Schema of the input, an object
	// Others are the members that the tool accepts beside those of the schema. If nil, it accepts all that the
	// schema does not forbid.
	Others []string
	// ReadOnly tools have no effects: they may start during the model's answer, and run concurrently.
	ReadOnly bool

	compiled compiledSchema
}

// A Kind is a kind of access.
type Kind string

// Kinds of access.
const (
	Read    Kind = "read"    // Path is read
	Write   Kind = "write"   // Path is created, changed or removed
	Execute Kind = "execute" // Command is run by a shell
	Fetch   Kind = "fetch"   // URL is fetched
	Agent   Kind = "agent"   // the agent Name is started, under its own policy
	Skill   Kind = "skill"   // the skill or command Name is used
	Other   Kind = "other"   // anything else; decided only by the tool's name
)

// An Access is one thing that a call touches.
type Access struct {
	Kind    Kind   `json:"kind"`
	Path    string `json:"path,omitempty"` // absolute, not resolved
	Command string `json:"command,omitempty"`
	// URL is the address to fetch. For an MCP resource it is that of the resource; then the kind is
	// Other and Name is the server, such as "mcp__db". If it is the URL of a file, rules about that
	// file apply.
	URL  string `json:"url,omitempty"`
	Name string `json:"name,omitempty"`
	// Plain means that a skill is only a text: it allows no tools and has no hooks. For an MCP
	// resource it means that the server has listed the address, which so tells it nothing.
	Plain bool `json:"plain,omitempty"`
	// Sandbox is where a command would run: [Inside] a sandbox, [Outside] because the model requested
	// it, or empty if there is none or the settings exclude the command.
	Sandbox string `json:"sandbox,omitempty"`
	// Unwalled means that the model requested to run a command outside of the read wall. Then proof
	// alone does not allow it.
	Unwalled bool `json:"unwalled,omitempty"`
}

// A Place is where the command of a call runs, which depends on what allowed the call.
type Place string

// The places where commands run.
const (
	Anywhere  Place = ""          // in the workspace sandbox if the settings enable it, else unconfined
	ReadWall  Place = "read"      // behind the read wall: it can change nothing and reach nobody
	Workspace Place = "workspace" // where it can change only the working directories
	Listed    Place = "listed"    // as Anywhere, but its words mean programs of the machine: no file of the project and no alias
)

// Values of [Access.Sandbox].
const (
	Inside  = "inside"
	Outside = "outside" // always needs permission
)

// A Call is one use of a tool.
type Call struct {
	ID    string          // of the model's tool_use block
	Input json.RawMessage // valid by the schema
	Env   *Env

	// Given is the path in the input of a [PathTool] as the model wrote it, for the result. Empty means
	// that it is as in Input.
	Given string

	// Resolved has the targets of the paths in the call's [Access], as the policy decided about them.
	// A file tool opens only these files: it rejects a path that now resolves elsewhere, or that is
	// not in the map. If nil, the policy has not decided; then a path inside the roots must not lead
	// out of them.
	Resolved map[string]Target

	// Place is where a command of the call runs.
	Place Place

	// Effort is the effort of the model that made the call; empty if the model has no levels.
	Effort wire.Effort

	// Hooks runs hooks about an effect that the call is about to have. It returns the reason if they
	// block it. It may be nil; see [Call.Blocked].
	Hooks func(wire.HookInput) (reason string, blocked bool)
}

// Blocked runs hooks, and returns the reason if they block the effect that the input describes.
func (c *Call) Blocked(in wire.HookInput) (reason string, blocked bool) {
	if c.Hooks == nil {
		return "", false
	}
	return c.Hooks(in)
}

// A Target is the file that a path resolves to. The policy decides about it, and the tool opens it.
type Target struct {
	Path string      // absolute, with every symbolic link followed; empty if that failed
	Info fs.FileInfo // nil if there is no such file
}

// A Result is the result of a tool.
type Result struct {
	Content    wire.Content // for the model
	Structured any          // for programs: the tool_use_result of the protocol; encoded as JSON
	IsError    bool         // for a failure with its own structured result; see also errors
	Follow     []string     // for the model and the host, after the results
}

// Text returns a result with text for the model and a structured result for programs.
func Text(text string, structured any) *Result {
	return &Result{Content: wire.Text(text), Structured: structured}
}

// A UseError means that the model used a tool incorrectly, and explains how to use it. The model
// receives it inside <tool_use_error> tags, which clients look for. Other errors are sent verbatim.
type UseError struct {
	Message string
	Issues  []Issue // errors of an input that does not match its schema
}

// An Issue is one error in an input, in a form for programs.
type Issue struct {
	Origin    string   `json:"origin,omitempty"`   // too_small, too_big: "string", "array" or "number"
	Expected  string   `json:"expected,omitempty"` // invalid_type: the expected type
	Code      string   `json:"code"`               // invalid_type, invalid_value, invalid_format, unrecognized_keys, too_small, too_big, custom
	Format    string   `json:"format,omitempty"`   // invalid_format: the format
	Minimum   *float64 `json:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty"`
	Inclusive bool     `json:"inclusive,omitempty"`
	Values    []any    `json:"values,omitempty"` // invalid_value: the possible values
	Keys      []string `json:"keys,omitempty"`   // unrecognized_keys: the keys
	Path      []any    `json:"path"`             // names and indexes
	Message   string   `json:"message"`
}

// Error returns the message.
func (e *UseError) Error() string { return e.Message }

// Misuse returns a [UseError].
func Misuse(format string, args ...any) error {
	return &UseError{Message: fmt.Sprintf(format, args...)}
}

// program returns the error for programs.
func (e *UseError) program() string {
	const invalid = "InputValidationError: "
	switch {
	case len(e.Issues) > 0:
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if enc.Encode(e.Issues) == nil {
			return invalid + strings.TrimSpace(b.String())
		}
	case strings.HasPrefix(e.Message, invalid), strings.HasPrefix(e.Message, "Error: "):
		return e.Message
	}
	return "Error: " + e.Message
}

// Failed returns the result of a call that ended in an error: the text for the model and the string
// for programs.
func Failed(err error) *Result {
	text := err.Error()
	var use *UseError
	if errors.As(err, &use) {
		return &Result{Content: wire.Text("<tool_use_error>" + text + "</tool_use_error>"), Structured: use.program(), IsError: true}
	}
	return &Result{Content: wire.Text(text), Structured: "Error: " + text, IsError: true}
}
