package policy

import (
	"encoding/json"
	"time"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Decision is the outcome of a request, with its reason.
type Decision struct {
	Behavior   wire.PermissionBehavior
	Reason     string // for people
	ReasonType string // "rule", "mode", "workingDir" … as the protocol names it
	DecidedBy  Basis  // basis of the decision; empty if nothing decided and permission is requested
	Rule       *Rule  // the rule that decided, if any
	Path       string // the file that caused it, if any
	// Beside is the decision that would apply without Rule. It is set if Rule asks about a whole
	// tool, and the call would also need permission without it.
	Beside *Decision

	req  *Request
	seen *shell.Script // the analyzed command of the call, if any
}

// A Basis is what a decision is based on. From it the caller knows where an allowed
// command may run: nobody approved one that is allowed [ByProof], so it runs behind the
// read wall, where a mistake does no harm.
type Basis string

// Bases of a decision. A caller that decides instead of the policy, because a hook or a
// person answered, sets one of its own.
const (
	ByRule    Basis = "rule"    // a rule of the user
	ByMode    Basis = "mode"    // the permission mode
	BySandbox Basis = "sandbox" // the settings: commands in the workspace sandbox need no permission
	ByProof   Basis = "proof"   // the call was proved to only read
	ByTable   Basis = "table"   // a command of literal words that is listed as harmless; it needs no wall
	BySafety  Basis = "safety"  // the call changes a file that configures what programs execute, or touches one outside of its worktree
	ByRemoval Basis = "removal" // the call removes the root of the file system, the home or a working directory
	ByEdits   Basis = "edits"   // mode acceptEdits: the call was proved to change only files in the roots
	ByJudge   Basis = "judge"   // the model that judges calls in mode auto
	ByHook    Basis = "hook"    // a hook
	ByAnswer  Basis = "answer"  // a person, or the host in their place
)

// Place returns where the command of a call runs that was allowed on this basis.
func (b Basis) Place() tool.Place {
	switch b {
	case ByProof:
		return tool.ReadWall
	case ByEdits, BySandbox, ByJudge:
		return tool.Workspace
	case ByTable:
		return tool.Listed
	}
	return tool.Anywhere
}

// A Receipt is a recorded decision. It contains everything that explains the decision, and
// everything that is needed to decide again under other rules. It is encoded as JSON in the
// session. The caller of the policy fills in who answered and when.
type Receipt struct {
	ToolUseID string              `json:"tool_use_id,omitempty"`
	AgentID   string              `json:"agent_id,omitempty"` // of a subagent
	Tool      string              `json:"tool"`
	Server    string              `json:"server,omitempty"` // MCP server of the tool, if any
	Input     json.RawMessage     `json:"input,omitempty"`  // as it was decided
	ReadOnly  bool                `json:"read_only,omitempty"`
	Access    []tool.Access       `json:"access,omitempty"` // as declared by the tool
	Mode      wire.PermissionMode `json:"mode"`
	Directories
	Confinement

	Commands []Command `json:"commands,omitempty"` // that a shell would run, without wrappers
	Files    []File    `json:"files,omitempty"`
	Unclear  string    `json:"unclear,omitempty"` // why not all effects are known

	Behavior   wire.PermissionBehavior `json:"behavior"` // decision of the policy
	Reason     string                  `json:"reason,omitempty"`
	ReasonType string                  `json:"reason_type,omitempty"`
	Rule       *Rule                   `json:"rule,omitempty"`
	DecidedBy  Basis                   `json:"decided_by,omitempty"`
	Path       string                  `json:"path,omitempty"`

	Answers
}

// Answers is the final decision about a call. The engine fills it in.
type Answers struct {
	Hooks  []HookAnswer            `json:"hooks,omitempty"`
	Judge  *Judgement              `json:"judge,omitempty"`  // of the model that judges calls in mode auto
	Answer wire.PermissionBehavior `json:"answer,omitempty"` // the final decision
	By     string                  `json:"by,omitempty"`     // who decided: "policy", "judge", "hook", "host", "person", "nobody"
	At     time.Time               `json:"at,omitzero"`
}

// Directories are those in which a call was decided; see [Request].
type Directories struct {
	Roots []string `json:"roots,omitempty"`
	Cwd   string   `json:"cwd,omitempty"`
	Home  string   `json:"home,omitempty"`
}

// A Confinement is how a call is confined; see [Request].
type Confinement struct {
	Bound     int  `json:"bound,omitempty"`
	Sandboxed bool `json:"sandboxed,omitempty"`
	ReadWall  bool `json:"read_wall,omitempty"`
}

// A Command is one program that a shell command runs.
type Command struct {
	Args    []string `json:"args"`              // words with an unknown value are as written
	Via     string   `json:"via,omitempty"`     // the wrapper that runs it, such as "env" or "bash -c"
	Unclear bool     `json:"unclear,omitempty"` // a word depends on an unknown value
}

// A File is a file that a call touches.
type File struct {
	Kind     tool.Kind `json:"kind"` // [tool.Read] or [tool.Write]
	Path     string    `json:"path"`
	Resolved string    `json:"resolved,omitempty"` // with links followed, if that differs
	Via      string    `json:"via,omitempty"`      // the program or operator that touches it
}

// A HookAnswer is the answer of a hook about a call.
type HookAnswer struct {
	Event    string `json:"event"`
	Name     string `json:"name,omitempty"`
	Decision string `json:"decision,omitempty"` // "allow", "deny", "ask", or empty
	Reason   string `json:"reason,omitempty"`
	Changed  bool   `json:"changed,omitempty"` // the hook changed the input
	Error    string `json:"error,omitempty"`
}

// Access returns the access that the tool declared.
func (d Decision) Access() []tool.Access {
	if d.req == nil {
		return nil
	}
	return d.req.Access
}

// A Judgement is the answer of the model that judges calls in mode auto.
type Judgement struct {
	Behavior wire.PermissionBehavior `json:"behavior"` // allow or ask
	Reason   string                  `json:"reason,omitempty"`
	Model    string                  `json:"model,omitempty"`
	Error    string                  `json:"error,omitempty"` // why it could not judge
}

// Receipt returns the record of a decision that [Policy.Decide] made.
func (d Decision) Receipt() *Receipt {
	r := &Receipt{Behavior: d.Behavior, Reason: d.Reason, ReasonType: d.ReasonType, DecidedBy: d.DecidedBy, Rule: d.Rule, Path: d.Path}
	if d.req == nil {
		return r
	}
	req := d.req
	r.Tool, r.Server, r.ReadOnly, r.Access, r.Mode, r.Input = req.Tool.Name, req.Tool.Server, req.Tool.ReadOnly, req.Access, req.Mode, req.Input
	r.Roots, r.Bound, r.Cwd, r.Home, r.Sandboxed, r.ReadWall = req.Roots, req.Bound, req.Cwd, req.Home, req.Sandboxed, req.ReadWall
	for _, a := range req.Access {
		if a.Path != "" {
			r.Files = append(r.Files, newFile(a.Kind, a.Path, ""))
		}
	}
	if d.seen != nil {
		describe(d.seen, r)
	}
	return r
}

func newFile(kind tool.Kind, path, via string) File {
	f := File{Kind: kind, Path: path, Via: via}
	if real := resolve(path); real != path {
		f.Resolved = real
	}
	return f
}

// Request returns the request of a receipt, to decide it again.
func (r *Receipt) Request() *Request {
	return &Request{Tool: &tool.Spec{Name: r.Tool, Server: r.Server, ReadOnly: r.ReadOnly}, Access: r.Access, Input: r.Input, Mode: r.Mode,
		Roots: r.Roots, Bound: r.Bound, Cwd: r.Cwd, Home: r.Home, Sandboxed: r.Sandboxed, ReadWall: r.ReadWall}
}
