package parley

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	sessions "github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options configure the agent and the connection to it. The zero value, and a nil pointer,
// mean the agent that is found on this machine with its own defaults. Options may be used
// for many queries and clients; they must not be changed while one runs.
//
// Lists distinguish unset (nil) from empty where the protocol does.
type Options struct {
	// The agent and its model.

	Model          string      // an alias such as "sonnet", or the name of a model; empty means the agent's choice
	FallbackModels []string    // used in order when the model is overloaded
	Thinking       Thinking    // how the model reasons; the zero value leaves it to the agent
	Effort         wire.Effort // "low", "medium", "high", "xhigh" or "max"
	Betas          []string    // beta features of the API to request

	// Instructions.

	// SystemPrompt is the system prompt. If it is empty, there is none, unless
	// KeepSystemPrompt is set.
	SystemPrompt string
	// SystemPromptParts is the system prompt in parts. [SystemPromptBoundary] as a
	// separate part divides the part that can be cached from the part that changes.
	SystemPromptParts []string
	// SystemPromptFile names a file with the system prompt.
	SystemPromptFile string
	// KeepSystemPrompt uses the agent's own system prompt.
	KeepSystemPrompt bool
	// AppendSystemPrompt is added to the agent's own system prompt, or to
	// SystemPrompt.
	AppendSystemPrompt string
	// ExcludeDynamicSections leaves out sections that differ between machines, so that
	// many users share one cached prompt.
	ExcludeDynamicSections bool
	// FreshSystemPrompt rebuilds the system prompt for each request instead of keeping the
	// first one.
	FreshSystemPrompt bool
	// PlanModeInstructions replace the agent's instructions about plan mode.
	PlanModeInstructions string
	// VerbatimPrompts sends prompts verbatim: no slash commands, no file mentions.
	VerbatimPrompts bool

	// Tools.

	Tools           []string          // the available built-in tools; nil means the agent's own set, empty means none
	AllowedTools    []string          // rules for calls that need no permission, such as "Bash(git diff:*)"
	DisallowedTools []string          // tools to remove, or rules for calls to deny
	ToolAliases     map[string]string // other names by which the model may call tools
	Skills          []string          // the available skills; nil leaves it to the agent
	AllSkills       bool              // all skills may be used without asking for permission

	// MCPServers are servers that the agent starts or connects to, by name.
	MCPServers map[string]*wire.MCPServerConfig
	// MCPConfig holds the names of files with more servers, or their JSON.
	MCPConfig []string
	// ToolServers are MCP servers that run in this process, by name; see [NewTool] and
	// [ToolServer].
	ToolServers map[string]*mcp.Server
	// StrictMCPConfig ignores servers from any other source.
	StrictMCPConfig bool

	Agents         map[string]*wire.AgentDefinition // subagents, by name
	Agent          string                           // the subagent that runs the main conversation
	Plugins        []*wire.PluginConfig             // plugins to load
	PluginsInStart bool                             // list plugins in the first request instead of the command line

	// Permissions.

	PermissionMode wire.PermissionMode // which calls need no permission; empty means the mode of the settings
	// CanUseTool decides about calls that no rule decides. If it is nil, they are denied.
	CanUseTool CanUseTool
	// PermissionPromptTool names an MCP tool that decides instead of CanUseTool.
	PermissionPromptTool string
	// NoPermissionPrompts denies calls that would need permission instead of asking for
	// it.
	NoPermissionPrompts bool
	// AllowBypass permits PermissionMode to be, or to become, bypassPermissions.
	AllowBypass bool
	// Hooks are functions that are called on certain events; see [On].
	Hooks []Hook
	// OnElicitation answers questions of MCP servers. If it is nil, they are declined.
	OnElicitation func(ctx context.Context, req *wire.Elicitation) (*wire.ElicitResult, error)
	// OnUserDialog shows dialogs of the kinds in DialogKinds. If it returns nil, the
	// dialog stays open for somebody else to answer.
	OnUserDialog func(ctx context.Context, req *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error)
	DialogKinds  []string // kinds of dialogs that OnUserDialog can show
	// OnRequest receives every request of the agent before any other callback, including
	// requests that this package does not know, which are [*wire.UnknownRequest]. The JSON
	// that it returns is the response. If it returns [ErrNotHandled], the request goes to
	// the other callbacks; with [ErrNoAnswer] the agent gets no response; a
	// [*ControlError] is sent as it is. Any other error denies what the request guards. If
	// OnRequest is set, the agent asks for permission even if CanUseTool is nil.
	OnRequest func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error)

	// Directories and environment.

	Cwd             string                // working directory; empty means that of this process
	AddDirs         []string              // more directories that the agent may work in
	Env             map[string]string     // variables to add to the environment
	CleanEnv        bool                  // start from an empty environment instead of this process's
	Settings        json.RawMessage       // settings, as a JSON object
	SettingsFile    string                // a file with settings
	SettingSources  []string              // "user", "project", "local"; nil means all, empty none
	ManagedSettings json.RawMessage       // restrictions that no other settings can lift
	Sandbox         *wire.SandboxSettings // how commands are confined

	// The conversation.

	Resume          string // resume the session with this id or title
	Continue        bool   // resume the last session of the working directory
	Fork            bool   // resume in a new session
	SessionID       string // the id of a new session, a UUID
	ResumeAt        string // resume after this message
	ResumeDropsTurn string // fail rather than drop anything but this turn
	Title           string // of a new session
	NoPersistence   bool   // do not store the session
	Checkpoints     bool   // keep the earlier content of files, for [Client.RewindFiles]
	// SessionStore keeps a copy of the session: it has everything that the agent wrote to
	// its files before each result is yielded. A batch that fails three times is left out,
	// and reported with a [wire.MirrorError]. Resume with an id, and Continue, look for
	// the session there first. The agent then gets the session in a separate directory
	// with the user's settings, which is removed afterwards. With a Dialer the store only
	// receives the copy.
	SessionStore sessions.Store

	// Limits.

	MaxTurns     int     // model calls in one turn; 0 means no limit
	MaxBudgetUSD float64 // 0 means no limit
	TaskBudget   int     // tokens for the whole task; the model receives the number
	// OutputSchema is a JSON Schema that the answer must match; see [RunAs].
	OutputSchema json.RawMessage

	// Messages and logs.

	PartialMessages    bool   // yield the answer while the model writes it, as [wire.StreamEvent]
	HookEvents         bool   // yield the progress of hooks from the settings
	SubagentText       bool   // yield the text of subagents
	ReplayUserMessages bool   // yield prompts when the agent starts to process them
	PromptSuggestions  bool   // yield suggestions for the next prompt
	ProgressSummaries  bool   // summarize periodically what subagents do
	SpareTasks         bool   // an interrupt does not stop background agents
	Debug              bool   // the agent logs to standard error
	DebugFile          string // the agent logs to this file

	// Stderr is called for each line of the agent's standard error. The agent never waits
	// for it: lines are dropped when 8 MiB are queued, and from a second after the agent
	// has ended. A line states how many, and at the end a [*DroppedError] goes to
	// OnWarning.
	Stderr func(line string)
	// OnWarning is called for failures that end nothing: a callback that failed, options
	// that contradict each other. The calls come one at a time, and nothing waits for them
	// until the end: neither OnWarning nor any other callback is called once [Query], [Run]
	// or [Client.Close] has returned.
	OnWarning func(error)
	// Logger logs internal events. Nil means no log.
	Logger *slog.Logger
	// Traces and Metrics receive OpenTelemetry spans and measurements: a span for each
	// turn and each callback, by the conventions for generative AI, without the text of
	// prompts and answers. Nil means no export. A span in the context of [Query] or
	// [Connect] is passed to the agent as TRACEPARENT in any case, so that its spans
	// belong to the same trace.
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider

	// The connection.

	// Path is the agent's executable. If it is empty, [transport.Find] looks
	// for one.
	Path string
	// ExtraArgs are more flags, without dashes; an empty value means a flag without a
	// value.
	ExtraArgs map[string]string
	// ExtraInitialize are more members of the first request, as JSON. They may also
	// replace members that no option sets. With "keepsTurns": true, a turn that is running
	// when the client is closed, or when this process dies, is cut off instead of ended,
	// so that another agent can continue it: see package hub. With "toolOutput": true,
	// [wire.ToolProgress] messages contain the output of a command while it runs.
	ExtraInitialize map[string]json.RawMessage
	// Dialer creates the connection. Nil means that the agent is a process on this
	// machine, started by [transport.Process].
	Dialer transport.Dialer

	// Limits. Zero means the default.

	InitTimeout    time.Duration // for the response to the first request; 60 s
	ControlTimeout time.Duration // for the response to other requests; 60 s
	WriteTimeout   time.Duration // for the agent to read its input; 60 s
	IdleTimeout    time.Duration // how long the agent may be silent in a turn while no callback runs; 30 min, negative means forever
	CloseTimeout   time.Duration // for the agent to exit by itself after its input is closed, and again after Close stops it; 5 s
	MaxLine        int           // longest line in bytes; 64 MiB
	// MaxCallbacks is how many callbacks run concurrently; 1024. Further requests of the
	// agent wait for one to return; up to 64 times as many may wait.
	MaxCallbacks int
	// MaxBuffered is how many bytes of unread messages are held in memory; more go to a
	// temporary file. 16 MiB.
	MaxBuffered int64
	// MaxQueued is how many bytes of messages may be unread in total before the turn ends
	// with an [*OverflowError]. 4 GiB.
	MaxQueued int64
}

// SystemPromptBoundary is a part of [Options.SystemPromptParts] that separates the parts
// that never change from those that do.
const SystemPromptBoundary = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"

// Thinking configures how the model reasons before it answers.
type Thinking struct {
	Mode    ThinkingMode // whether and how much to reason
	Budget  int          // tokens, with ThinkingBudget
	Display string       // "summarized" or "omitted"; empty leaves it to the agent
}

// A ThinkingMode is a mode of reasoning.
type ThinkingMode string

// The modes of reasoning.
const (
	ThinkingUnset    ThinkingMode = ""         // the agent's default
	ThinkingAdaptive ThinkingMode = "adaptive" // as much as the model finds useful
	ThinkingBudget   ThinkingMode = "budget"   // as much as Budget allows
	ThinkingDisabled ThinkingMode = "disabled" // not at all
)
