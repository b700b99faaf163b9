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

// Options say what agent to talk to and how. The zero value, and a nil pointer,
// mean the agent that is found on this machine with its own defaults. Options may
// be used for many queries and clients; they must not be changed while one runs.
//
// Lists tell unset (nil) from empty where the protocol does.
type Options struct {
	// The agent and its model.

	Model          string      // an alias such as "sonnet", or the name of a model; empty means the agent's choice
	FallbackModels []string    // tried in order when the model is overloaded
	Thinking       Thinking    // how the model reasons; the zero value leaves it to the agent
	Effort         wire.Effort // "low", "medium", "high", "xhigh" or "max"
	Betas          []string    // beta features of the API to ask for

	// Instructions.

	// SystemPrompt is the system prompt. If it is empty there is none, unless
	// KeepSystemPrompt is set.
	SystemPrompt string
	// SystemPromptParts is the system prompt in parts; [SystemPromptBoundary]
	// as a part of its own splits what can be cached from what changes.
	SystemPromptParts []string
	// SystemPromptFile names a file with the system prompt.
	SystemPromptFile string
	// KeepSystemPrompt uses the agent's own system prompt.
	KeepSystemPrompt bool
	// AppendSystemPrompt is added to the agent's own system prompt, or to
	// SystemPrompt.
	AppendSystemPrompt string
	// ExcludeDynamicSections leaves out what differs between machines, so that
	// many users share one cached prompt.
	ExcludeDynamicSections bool
	// FreshSystemPrompt builds the system prompt anew for each request instead
	// of keeping it as it first was.
	FreshSystemPrompt bool
	// PlanModeInstructions replace what the agent tells the model about plan
	// mode.
	PlanModeInstructions string
	// VerbatimPrompts sends prompts as they are: no slash commands, no file
	// mentions.
	VerbatimPrompts bool

	// Tools.

	Tools           []string          // the built-in tools there are; nil means the agent's own set, empty means none
	AllowedTools    []string          // rules for calls that need no asking, such as "Bash(git diff:*)"
	DisallowedTools []string          // tools to remove, or rules for calls that are denied
	ToolAliases     map[string]string // other names that the model may call tools by
	Skills          []string          // the skills there are; nil leaves it to the agent
	AllSkills       bool              // all skills may be used without asking

	// MCPServers are servers that the agent starts or connects to, by name.
	MCPServers map[string]*wire.MCPServerConfig
	// MCPConfig names files with more servers, or is their JSON.
	MCPConfig []string
	// ToolServers are MCP servers that run in this process, by name; see
	// [NewTool] and [ToolServer].
	ToolServers map[string]*mcp.Server
	// StrictMCPConfig ignores servers from anywhere else.
	StrictMCPConfig bool

	Agents         map[string]*wire.AgentDefinition // subagents, by name
	Agent          string                           // the one that the main conversation is
	Plugins        []*wire.PluginConfig             // plugins to load
	PluginsInStart bool                             // name plugins in the first request instead of the command line

	// Permissions.

	PermissionMode wire.PermissionMode // which calls need no asking; empty means as the settings have it
	// CanUseTool is asked about calls that no rule decides. If it is nil they
	// are denied.
	CanUseTool CanUseTool
	// PermissionPromptTool names an MCP tool that is asked instead.
	PermissionPromptTool string
	// NoPermissionPrompts denies at once what would be asked.
	NoPermissionPrompts bool
	// AllowBypass permits PermissionMode to be, or become, bypassPermissions.
	AllowBypass bool
	// Hooks are functions that are called at certain moments; see [On].
	Hooks []Hook
	// OnElicitation answers questions of MCP servers. If it is nil they are
	// declined.
	OnElicitation func(ctx context.Context, req *wire.Elicitation) (*wire.ElicitResult, error)
	// OnUserDialog shows dialogs of the kinds in DialogKinds. If it returns nil
	// the dialog stays open: somebody else will answer it.
	OnUserDialog func(ctx context.Context, req *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error)
	DialogKinds  []string // of which dialogs there may be
	// OnRequest gets every request of the agent before any other callback does:
	// also requests that this package does not know, which are
	// [*wire.UnknownRequest]. The JSON that it returns is the answer. If it
	// returns [ErrNotHandled], the request goes to the other callbacks; with
	// [ErrNoAnswer] the agent gets no answer; a [*ControlError] is sent as it is.
	// Any other error denies what the request guards. If OnRequest is set, the agent
	// asks about tools though CanUseTool is nil.
	OnRequest func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error)

	// Directories and environment.

	Cwd             string                // working directory; empty means that of this process
	AddDirs         []string              // more directories that it may work in
	Env             map[string]string     // variables on top of the environment
	CleanEnv        bool                  // start from an empty environment instead of this process's
	Settings        json.RawMessage       // settings, as a JSON object
	SettingsFile    string                // a file with settings
	SettingSources  []string              // "user", "project", "local"; nil means all, empty none
	ManagedSettings json.RawMessage       // restrictions that nothing below can lift
	Sandbox         *wire.SandboxSettings // how commands are confined

	// Which conversation.

	Resume          string // go on with the session of this id or title
	Continue        bool   // go on with the last session of the working directory
	Fork            bool   // do so in a new session
	SessionID       string // the id of a new session, a UUID
	ResumeAt        string // go on behind this message
	ResumeDropsTurn string // refuse to drop anything but this turn
	Title           string // of a new session
	NoPersistence   bool   // keep the session nowhere
	Checkpoints     bool   // keep what files were before, for [Client.RewindFiles]
	// SessionStore keeps a copy of the session: what the agent writes to its files is
	// in it before each result is yielded. A batch that fails three times
	// is left out, and reported with a [wire.MirrorError]. Resume with an id, and
	// Continue, look for the session there first; it then comes to the agent in a
	// directory of its own, with the user's settings, that is removed afterwards. With a
	// Dialer it is a copy only.
	SessionStore sessions.Store

	// How far.

	MaxTurns     int     // rounds of one turn; 0 means no limit
	MaxBudgetUSD float64 // 0 means no limit
	TaskBudget   int     // tokens for the whole task; the model receives the number
	// OutputSchema is a JSON Schema that the answer has to fit; see [RunAs].
	OutputSchema json.RawMessage

	// Reports.

	PartialMessages    bool   // yield the answer while it is written, as [wire.StreamEvent]
	HookEvents         bool   // yield what hooks of the settings do
	SubagentText       bool   // yield what subagents say
	ReplayUserMessages bool   // yield prompts when the agent takes them up
	PromptSuggestions  bool   // yield proposals for the next prompt
	ProgressSummaries  bool   // sum up now and then what subagents do
	SpareTasks         bool   // an interrupt leaves background agents alone
	Debug              bool   // the agent logs to standard error
	DebugFile          string // the agent logs to this file

	// Stderr is called for each line of the agent's standard error. The agent never
	// waits for it: when 8 MiB wait, or a second after the agent has ended, lines
	// are dropped. A line says how many, and at the end a [*DroppedError] goes to
	// OnWarning.
	Stderr func(line string)
	// OnWarning is called for what went wrong without ending anything: a
	// callback that failed, options that defeat each other. It may be called
	// from several goroutines, but not after the end: neither it nor any other
	// callback is called once [Query], [Run] or [Client.Close] has returned.
	OnWarning func(error)
	// Logger gets what happens inside. Nil means nothing is logged.
	Logger *slog.Logger
	// Traces and Metrics are where OpenTelemetry's spans and measurements go: a span
	// for each turn and each callback, by the conventions for generative AI, without
	// the text of prompts and answers. Nil means that nothing is exported. A span in the
	// context of [Query] or [Connect] is handed on to the agent as TRACEPARENT
	// either way, so that its spans belong to the same trace.
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider

	// How to get there.

	// Path is the agent's executable. If it is empty, [transport.Find] looks
	// for one.
	Path string
	// ExtraArgs are more flags, without dashes; an empty value means a flag
	// alone.
	ExtraArgs map[string]string
	// ExtraInitialize are more members of the first request, as JSON. They may also
	// take the place of members that no option sets. With "keepsTurns": true, a turn that
	// runs when the client is closed, or when this process dies, is not ended but cut off,
	// so that another agent can continue it: see package hub. With "toolOutput": true,
	// [wire.ToolProgress] messages hold what a command prints while it runs.
	ExtraInitialize map[string]json.RawMessage
	// Dialer makes the connection. Nil means that the agent is a process of
	// this machine, started by [transport.Process].
	Dialer transport.Dialer

	// Bounds. Zero means the default.

	InitTimeout    time.Duration // for the answer to the first request; 60 s
	ControlTimeout time.Duration // for the answer to other requests; 60 s
	WriteTimeout   time.Duration // for the agent to read what it is sent; 60 s
	IdleTimeout    time.Duration // how long the agent may be silent in a turn while no callback runs; 30 min, negative means for ever
	CloseTimeout   time.Duration // for the agent to end by itself after its input is closed; 5 s
	MaxLine        int           // longest line in bytes; 64 MiB
	// MaxCallbacks is how many callbacks run at once; 1024. Requests of the agent
	// beyond that wait for one to return, and up to 64 times as many may.
	MaxCallbacks int
	// MaxBuffered is how many bytes of messages that nobody read are held in
	// memory; more go to a temporary file. 16 MiB.
	MaxBuffered int64
	// MaxQueued is how many bytes may wait in all before the turn ends in an
	// [*OverflowError]. 4 GiB.
	MaxQueued int64
}

// SystemPromptBoundary is a part of [Options.SystemPromptParts] that stands
// between what never changes and what does.
const SystemPromptBoundary = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"

// Thinking says how the model reasons before it answers.
type Thinking struct {
	Mode    ThinkingMode // whether, and how much
	Budget  int          // tokens, with ThinkingBudget
	Display string       // "summarized" or "omitted"; empty leaves it to the agent
}

// A ThinkingMode is a way to reason.
type ThinkingMode string

// The ways to reason.
const (
	ThinkingUnset    ThinkingMode = ""         // as the agent likes
	ThinkingAdaptive ThinkingMode = "adaptive" // as much as the model finds useful
	ThinkingBudget   ThinkingMode = "budget"   // as much as Budget allows
	ThinkingDisabled ThinkingMode = "disabled" // not at all
)
