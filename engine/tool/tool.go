// Package tool is the seam between the engine and what it can do.
//
// A [Tool] has a name, a description and a schema for the model, and runs under a
// context. It knows neither the protocol nor the policy: before it runs, somebody
// else has decided that it may, from the [Access] that it says it needs. The
// built-in tools are the packages below this one.
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

// A Tool is something that the model can have done. It is safe for concurrent use
// and keeps no state of a conversation: that is in the [Env].
type Tool interface {
	// Spec says what the tool is. It never changes.
	Spec() *Spec
	// Access says what a call would touch. The input is valid by the schema.
	// The policy decides about each; a tool that touches nothing returns none.
	Access(env *Env, input json.RawMessage) ([]Access, error)
	// Run does it. An error becomes a result that tells the model; see
	// [UseError]. When ctx ends Run returns soon, with nothing of it left
	// running.
	Run(ctx context.Context, call *Call) (*Result, error)
}

// A PathTool is a tool whose input names files or directories.
type PathTool interface {
	Tool
	// Absolute returns a valid input with every path in it absolute and clean: relative
	// paths are relative to the working directory, ~ is the home, and a .. is taken away
	// with the name before it, whatever that name is on disk. Rules, hooks and hosts see
	// this input, and Run opens the very paths in it. Absolute of its result changes nothing.
	Absolute(env *Env, input json.RawMessage) (json.RawMessage, error)
}

// A Spec says what a tool is.
type Spec struct {
	Name        string
	Aliases     []string        // other names that are accepted
	RulesOf     string          // another tool whose permission rules hold for this one, too
	Server      string          // of a tool of an MCP server: the server, as it is in Name
	Description string          // for the model
	Schema      json.RawMessage // JSON Schema of the input, an object
	// ReadOnly tools have no effects: they may start while the model still
	// writes, and run beside each other.
	ReadOnly bool

	compiled compiledSchema
}

// A Kind is a way to touch something.
type Kind string

// The ways to touch something.
const (
	Read    Kind = "read"    // Path is read
	Write   Kind = "write"   // Path is created, changed or removed
	Execute Kind = "execute" // Command is run by a shell
	Fetch   Kind = "fetch"   // URL is fetched
	Agent   Kind = "agent"   // the agent Name is started, under a policy of its own
	Skill   Kind = "skill"   // the skill or command Name is used
	Other   Kind = "other"   // anything else; decided by the tool's name alone
)

// An Access is one thing that a call touches.
type Access struct {
	Kind    Kind   `json:"kind"`
	Path    string `json:"path,omitempty"` // absolute, not resolved
	Command string `json:"command,omitempty"`
	// URL is what is fetched. A resource of an MCP server has its own here, the
	// kind Other and the server's as Name, such as "mcp__db"; if it is a file's,
	// rules about that file hold.
	URL  string `json:"url,omitempty"`
	Name string `json:"name,omitempty"`
	// Sandbox says where a command would run: [Inside] one, [Outside] because the
	// model asked for it, or nothing if there is none or the settings say so.
	Sandbox string `json:"sandbox,omitempty"`
	// Unwalled says that the model asked for a command to run outside of the read
	// wall. Proof alone does not allow it then.
	Unwalled bool `json:"unwalled,omitempty"`
}

// A Place says where the command of a call runs, which depends on what allowed the
// call.
type Place string

// The places where commands run.
const (
	Anywhere  Place = ""          // in the workspace sandbox if the settings switch it on, else unconfined
	ReadWall  Place = "read"      // behind the read wall: it can change nothing and reach nobody
	Workspace Place = "workspace" // where it can change only the working directories
)

// The places where a command can run; see [Access].
const (
	Inside  = "inside"
	Outside = "outside" // never without being asked about
)

// A Call is one use of a tool.
type Call struct {
	ID    string          // of the model's tool_use block
	Input json.RawMessage // valid by the schema
	Env   *Env

	// Resolved has the targets of the paths of the call's [Access], as they were
	// judged. A file tool opens these files and no others: it refuses a path that
	// leads elsewhere by then, or that is not here. Nil means that nobody judged
	// the call; then a path inside the roots may not lead out of them.
	Resolved map[string]Target

	// Place says where a command of the call runs.
	Place Place

	// Hooks calls hooks about something that the call is about to do. It reports why they keep it from
	// happening. It may be nil; see [Call.Blocked].
	Hooks func(wire.HookInput) (reason string, blocked bool)
}

// Blocked calls hooks, and reports why they keep the call from doing what the input is about.
func (c *Call) Blocked(in wire.HookInput) (reason string, blocked bool) {
	if c.Hooks == nil {
		return "", false
	}
	return c.Hooks(in)
}

// A Target is the file that a path leads to. The policy judges it, and the tool
// opens it.
type Target struct {
	Path string      // absolute, with every symbolic link followed; empty if that failed
	Info fs.FileInfo // nil if there is no such file
}

// A Result is what a tool did.
type Result struct {
	Content    wire.Content // for the model
	Structured any          // for programs: the tool_use_result of the protocol; encoded as JSON
	IsError    bool         // for a failure that has a structured result of its own; see also errors
	Follow     []string     // for the model and the host, after the results
}

// Text returns a result that is text for the model, with what programs get.
func Text(text string, structured any) *Result {
	return &Result{Content: wire.Text(text), Structured: structured}
}

// A UseError says that the model used a tool in a wrong way, and how to use it
// right. The model receives it inside <tool_use_error> tags, which clients look for.
// Other errors are sent as they are.
type UseError struct {
	Message string
	Issues  []Issue // what is wrong with an input that does not fit its schema
}

// An Issue is one error in an input, in a form for programs.
type Issue struct {
	Origin    string   `json:"origin,omitempty"`   // too_small, too_big: "string", "array" or "number"
	Expected  string   `json:"expected,omitempty"` // invalid_type: the type that was expected
	Code      string   `json:"code"`               // invalid_type, invalid_value, invalid_format, unrecognized_keys, too_small, too_big, custom
	Format    string   `json:"format,omitempty"`   // invalid_format: which
	Minimum   *float64 `json:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty"`
	Inclusive bool     `json:"inclusive,omitempty"`
	Values    []any    `json:"values,omitempty"` // invalid_value: what is possible
	Keys      []string `json:"keys,omitempty"`   // unrecognized_keys: those
	Path      []any    `json:"path"`             // names and indexes
	Message   string   `json:"message"`
}

// Error returns the message.
func (e *UseError) Error() string { return e.Message }

// Misuse returns a [UseError].
func Misuse(format string, args ...any) error {
	return &UseError{Message: fmt.Sprintf(format, args...)}
}

// program is the string that programs get of the error.
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

// Failed makes the result of a call that ended in an error: the text for the model
// and the string for programs.
func Failed(err error) *Result {
	text := err.Error()
	var use *UseError
	if errors.As(err, &use) {
		return &Result{Content: wire.Text("<tool_use_error>" + text + "</tool_use_error>"), Structured: use.program(), IsError: true}
	}
	return &Result{Content: wire.Text(text), Structured: "Error: " + text, IsError: true}
}
