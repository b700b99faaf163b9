package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// An Actor is a person, a program or a schedule that uses a session. The caller of the
// hub has authenticated it.
type Actor struct {
	Name   string `json:"name"`           // of a user, a device or a program
	From   string `json:"from,omitempty"` // "socket", an address or "schedule"
	Rights Rights `json:"-"`
}

// Rights are the things that an actor may do.
type Rights uint8

// The rights. Each one is useful only together with the ones before it.
const (
	MayView    Rights = 1 << iota // receive entries and events
	MayApprove                    // allow or deny what the agent asks for
	MayDrive                      // send prompts, interrupt, change settings and the input of calls
	MayAdmin                      // create and remove sessions, take over from a host
)

// Everything is the set of all rights.
const Everything = MayView | MayApprove | MayDrive | MayAdmin

// ErrForbidden means that an actor does not have the right to do something.
var ErrForbidden = errors.New("hub: not allowed")

// need returns an error unless the actor has a right.
func (a Actor) need(r Rights, to string) error {
	if a.Rights&r == r {
		return nil
	}
	return fmt.Errorf("%w: %s may not %s", ErrForbidden, a.Name, to)
}

// Created is the data of a [KindCreated] or [KindForked] entry.
type Created struct {
	By    Actor  `json:"by"`
	Cwd   string `json:"cwd,omitempty"`
	Title string `json:"title,omitempty"`
	// Session is the id of the agent's session. It equals that of the hub's session
	// unless the conversation was cleared.
	Session string `json:"session"`
	// Spec is the value from which [Config.Agent] makes the agent's options.
	Spec json.RawMessage `json:"spec,omitempty"`
	// Worktree is the branch of the session's own worktree, which is at Cwd.
	Worktree string `json:"worktree,omitempty"`
	// Outside reports that the session began outside of a hub.
	Outside bool `json:"outside,omitempty"`
	// From is the original of a fork.
	From *Reference `json:"from,omitempty"`
}

// A Reference names an entry of a session.
type Reference struct {
	Session string `json:"session"`
	N       uint64 `json:"n"`
}

// Owner is the data of a [KindOwner] entry. The entry's number is the epoch of
// everything that the owner writes.
type Owner struct {
	Hub string `json:"hub"`
}

// Prompt is the data of a [KindPrompt] entry.
type Prompt struct {
	UUID string `json:"uuid"`
	By   Actor  `json:"by"`
	// Message is the prompt that the agent receives, a user message of the protocol.
	Message json.RawMessage `json:"message"`
	// Schedule is the schedule that sent the prompt, and Due is when it was due.
	Schedule string     `json:"schedule,omitempty"`
	Due      *time.Time `json:"due,omitempty"`
	// Trace is the span in which the prompt was sent: see [WithTrace].
	Trace string `json:"trace,omitempty"`
}

// Dropped is the data of a [KindDropped] entry: the prompt has no turn.
type Dropped struct {
	UUID   string `json:"uuid"`
	By     Actor  `json:"by"`
	Reason string `json:"reason"`
}

// An AskKind is the subject of a question.
type AskKind string

// The kinds of questions.
const (
	AskPermission  AskKind = "permission"  // may a tool run?
	AskPlan        AskKind = "plan"        // is the plan good?
	AskChoice      AskKind = "choice"      // the model asks the user to choose: AskUserQuestion
	AskElicitation AskKind = "elicitation" // an MCP server asks for something
	AskDialog      AskKind = "dialog"      // the agent needs a dialog to be shown
)

// Ask is the data of a [KindAsk] entry: a question that is sent to everyone who may
// approve, until one of them answers.
type Ask struct {
	ID        string  `json:"id"`
	Kind      AskKind `json:"kind"`
	Tool      string  `json:"tool,omitempty"`
	ToolUseID string  `json:"tool_use_id,omitempty"`
	// Request is the agent's request, as in the protocol.
	Request json.RawMessage `json:"request"`
	// Paths are the files that the call affects, with links resolved, and Diff is the
	// change that it would make, if known.
	Paths []string `json:"paths,omitempty"`
	Diff  string   `json:"diff,omitempty"`
	// Expires is when the hub denies the request by itself. Nil means never.
	Expires *time.Time `json:"expires,omitempty"`
	// Hash is the hash of everything that a question shows. An answer repeats it.
	Hash string `json:"hash"`
}

// hash returns the value of Hash.
func (a *Ask) hash() string {
	shown, _ := json.Marshal([]any{a.Kind, a.Request, a.Paths, a.Diff})
	return hashOf(shown)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Answer is the data of a [KindAnswer] entry.
type Answer struct {
	Ask string `json:"ask"`
	By  Actor  `json:"by"`
	// Shown is the hash of the question that was shown.
	Shown string `json:"shown,omitempty"`
	// Response is the answer that the agent receives: for tools a permission result.
	Response json.RawMessage `json:"response,omitempty"`
	// Kept is the earlier question about an identical call that this answer was given
	// to.
	Kept string `json:"kept,omitempty"`
	// Outcome is the reason why there is an answer.
	Outcome Outcome `json:"outcome"`
}

// An Outcome is the reason why a question is no longer open.
type Outcome string

// The outcomes of a question.
const (
	Answered  Outcome = "answered"
	Expired   Outcome = "expired"   // nobody answered in time, which denies the request
	Withdrawn Outcome = "withdrawn" // the agent no longer needs the answer
)

// Control is the data of a [KindControl] entry: a control request of the protocol that
// an actor sent to the agent.
type Control struct {
	By      Actor           `json:"by"`
	Request json.RawMessage `json:"request"`
}

// Changed is the data of a [KindChanged] entry.
type Changed struct {
	By   Actor           `json:"by"`
	Spec json.RawMessage `json:"spec"` // replaces [Created.Spec]
}

// HostChange is the data of a [KindHost] entry. The entry's number is the epoch of the
// host.
type HostChange struct {
	By Actor `json:"by"`
	// Initialize holds the host's registration: members of the initialize request. Nil
	// means that the host left.
	Initialize map[string]json.RawMessage `json:"initialize,omitempty"`
}

// Ended is the data of a [KindEnded] entry: a turn ended without a result, or the agent
// cannot be started.
type Ended struct {
	Prompts []string `json:"prompts,omitempty"` // uuids
	Reason  string   `json:"reason"`
	Holds   bool     `json:"holds,omitempty"` // queued prompts wait until somebody sends another one
}

// Rewound is the data of a [KindRewound] entry: the conversation continues after an
// earlier message.
type Rewound struct {
	By Actor  `json:"by"`
	To string `json:"to"` // the uuid of the last message that remains
}

// Cleared is the data of a [KindCleared] entry: the agent started a new session.
type Cleared struct {
	Session string `json:"session"`
}

// Archived is the data of a [KindArchived] entry.
type Archived struct {
	By       Actor `json:"by"`
	Archived bool  `json:"archived"`
}

// Trimmed is the data of a [KindTrimmed] entry. A viewer that asks for removed entries
// also receives one, without a number.
type Trimmed struct {
	Before uint64 `json:"before"` // entries with lower numbers are gone
	// State from removed entries that is still needed.
	Created  *Created          `json:"created,omitempty"`
	Session  string            `json:"session,omitempty"` // of the agent
	Title    string            `json:"title,omitempty"`
	Item     uint64            `json:"item,omitempty"` // the last inbox item that was consumed
	Prompts  []string          `json:"prompts,omitempty"`
	Sticky   []json.RawMessage `json:"sticky,omitempty"`
	Granted  []json.RawMessage `json:"granted,omitempty"`
	Host     *HostChange       `json:"host,omitempty"`
	HostN    uint64            `json:"host_n,omitempty"`
	Rewound  string            `json:"rewound,omitempty"`
	Archived bool              `json:"archived,omitempty"`
	Cost     float64           `json:"cost,omitempty"`       // of all turns
	Total    float64           `json:"total_cost,omitempty"` // in the last result
	Record   string            `json:"record,omitempty"`     // the last record that had a frame
}

// A Phase is the activity of a session.
type Phase string

// The phases of a session.
const (
	Idle           Phase = "idle"
	Running        Phase = "running"
	RequiresAction Phase = "requires_action"
)

// State is the current state of a session, the data of a [KindState] event.
type State struct {
	Phase   Phase     `json:"phase"`
	Since   time.Time `json:"since"`
	N       uint64    `json:"n"`                 // the number of the last entry
	Waiting []Waiting `json:"waiting,omitempty"` // the things it waits for
	Queued  []string  `json:"queued,omitempty"`  // uuids of queued prompts
	Tasks   []Task    `json:"tasks,omitempty"`   // in the background
	Title   string    `json:"title,omitempty"`
	Cwd     string    `json:"cwd,omitempty"`
	// Session is the id of the agent's session. It differs from that of the hub's
	// session after the conversation was cleared.
	Session string `json:"session,omitempty"`
	// Worktree is the branch of the session's own worktree, if it has one.
	Worktree string `json:"worktree,omitempty"`
	Archived bool   `json:"archived,omitempty"`
	// Owner is the hub that runs the session, empty if none does.
	Owner string `json:"owner,omitempty"`
	// Host is the attached host, if there is one.
	Host *HostState `json:"host,omitempty"`
	// CostUSD is the cost of all turns that have ended.
	CostUSD float64 `json:"cost_usd,omitempty"`
	// Problem is the reason why the agent cannot be started, if it cannot.
	Problem string `json:"problem,omitempty"`
	// Mode, Model and Effort are the settings of the agent that were changed in this session, by a
	// control request or, the mode, by the agent. Empty means the setting that it started with.
	Mode   string `json:"mode,omitempty"`
	Model  string `json:"model,omitempty"`
	Effort string `json:"effort,omitempty"`

	by Actor // the actor that created it
}

// A Waiting is one thing that a session waits for.
type Waiting struct {
	// Kind is "ask"; "host" for hooks and tools of a host that is away; or "agent" if the agent itself
	// is away: see [Start.Away].
	Kind    string     `json:"kind"`
	ID      string     `json:"id"`                // of the question or the request; empty for an agent
	About   string     `json:"about"`             // a tool, the subject of the request to the host, or the name of the agent
	Expires *time.Time `json:"expires,omitempty"` // nil means never
	Since   *time.Time `json:"since,omitempty"`   // when the agent went away
}

// String describes it for people.
func (w Waiting) String() string {
	switch {
	case w.Kind == "agent" && w.Since != nil:
		return "waits for its agent " + w.About + ", away since " + w.Since.Local().Format(time.DateTime)
	case w.Kind == "host":
		return "waits for its host, which is away: " + w.About
	}
	return "waits for an answer about " + w.About
}

// AgentAway describes since when the session waits for an agent that is away. It is empty if the
// session does not.
func (s *State) AgentAway() string {
	for _, w := range s.Waiting {
		if w.Kind == "agent" {
			return w.String()
		}
	}
	return ""
}

// A Task is a background task of the agent.
type Task struct {
	ID          string `json:"id"`
	Type        string `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
}

// HostState describes the host of a session.
type HostState struct {
	By    Actor  `json:"by"`
	Epoch uint64 `json:"epoch"`
	Away  bool   `json:"away,omitempty"`
}

// mustJSON encodes a value of this package.
func mustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("hub: %T cannot be encoded: %v", v, err))
	}
	return data
}
