package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// A Host is the program that drives a conversation. Its methods are called from several
// goroutines.
type Host interface {
	// Emit sends the next message. It may block if the host cannot accept more.
	Emit(m wire.Message)
	// CanAsk reports whether somebody can answer permission requests.
	CanAsk() bool
	// Ask sends a permission request for a tool call. It returns when the request is
	// answered or ctx ends. It calls sent once the request has been sent.
	Ask(ctx context.Context, req *wire.CanUseTool, sent func()) (*wire.PermissionResult, error)
	// Hooks runs the hooks for an event whose matcher matches the subject, concurrently,
	// and returns their answers in the order of registration.
	Hooks(ctx context.Context, in wire.HookInput, subject, toolUseID string) []hook.Answer
}

// AgentParts are the hooks, servers and texts that an agent brings. Each of them may be
// missing.
type AgentParts struct {
	// Hooks runs the hooks of the agent, as [Host] does.
	Hooks func(ctx context.Context, in wire.HookInput, subject string) []hook.Answer
	// MCP holds the agent's own servers.
	MCP *mcp.Manager
	// Context is sent to the agent at its start, such as its memory.
	Context []string
	// Close stops the processes and connections of the parts.
	Close func()
}

// A Config configures a conversation. The conversation never changes it.
type Config struct {
	ModelConfig
	AgentConfig
	PermissionConfig
	ContextConfig
	SessionConfig
	OutputConfig

	Tools []tool.Tool
	// Questions names the [QuestionTools] that the model has.
	Questions []string
	// MCP holds servers whose tools the model has as well. It may be nil. The caller
	// closes it.
	MCP *mcp.Manager
	Env *tool.Env
	// Setup is the reason to run Setup hooks before those for the start of the session:
	// "init" or "maintenance". If empty, they do not run.
	Setup string

	JSONSchema json.RawMessage // schema that the answer must match
	MaxTurns   int             // limit of rounds in one turn; 0 means none, and less than 0 means 1
	MaxBudget  int64           // in nano-dollars; 0 means no limit

	// Traces and Metrics receive OpenTelemetry spans and measurements; either may be nil.
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
	Logger  *slog.Logger
	Now     func() time.Time // nil means time.Now
}

// A ModelConfig names the models, and configures the requests to them.
type ModelConfig struct {
	Model      model.Model
	Catalog    *catalog.Catalog // properties of models; nil means the built-in list
	ModelName  string           // an alias or the name of a model; empty means the catalog's default
	Fallbacks  []string         // models to try when the model is overloaded, for the rest of the turn
	MaxRetries int              // retries of a request to the model; negative means none, zero the default of 10
	// IdleTimeout is how long the model's stream may be silent before it counts as
	// broken. Zero means 10 minutes.
	IdleTimeout time.Duration

	// SmallModel is the model that tools may use beside the conversation, for example to
	// summarize a page: an alias or the name of a model. If empty, they use none.
	SmallModel string
	// ServerTools is set if the provider of the model runs tools itself, such as
	// web_search.
	ServerTools bool
	Provider    string // the name of the provider in spans and measurements, such as "anthropic"

	Thinking Thinking
	Effort   string
	Betas    []string
	Tuning   Tuning
	// Compaction says when the conversation is replaced by a summary.
	Compaction Compaction
}

// An AgentConfig defines which subagents the model can start, and which agent the conversation
// runs as.
type AgentConfig struct {
	// Agents are the subagents that the model can start. If there are none, the model has
	// no tool to start one.
	Agents []*agents.Definition
	// Agent is the agent that the conversation runs as; nil means none. AgentName is the
	// name of an agent that is defined later: until then no prompt is answered.
	Agent     *agents.Definition
	AgentName string
	// AgentParts prepares the hooks, servers and texts of an agent. If nil, agents have
	// only their prompts.
	AgentParts       func(*agents.Definition) (*AgentParts, error)
	ForwardSubagents bool // emit the text of subagents, not only their tool calls
	NoSendMessage    bool // the model cannot send messages to subagents that it started
	NoBackground     bool // the conversation always waits for subagents
	SpareBackground  bool // an interrupt does not stop subagents in the background
}

// A PermissionConfig has the rules about tool calls.
type PermissionConfig struct {
	Policy      *policy.Policy // rules; may be nil
	Mode        wire.PermissionMode
	AllowBypass bool // Mode may become bypassPermissions
	NoPrompts   bool // deny calls that need permission instead of asking
	FixedAllows bool // no allow rule is added during the conversation
	// Keep stores a change of the rules for later conversations, if its destination
	// requires that, and returns the file that holds it. It is called by several
	// goroutines. If nil, no change is stored.
	Keep func(*wire.PermissionUpdate) (path string, err error)
	// Refresh is called before a prompt is handled and before a call is decided, by
	// several goroutines other than the owner. It may update the rules if their sources
	// have changed. It may be nil.
	Refresh func(context.Context)
}

// A ContextConfig has the texts that the model receives beside the conversation: the system
// prompt, and the instructions and files of the user and the project.
type ContextConfig struct {
	SystemPrompt       []string // replaces the built-in prompt; nil means the built-in prompt
	AppendSystemPrompt string

	Project         *project.Context        // may be nil
	ReadProject     func() *project.Context // reads it again, for /clear; nil keeps Project
	Git             project.GitRunner       // reads the state of the repository; nil means that git is not run
	SkillTool       bool                    // the model has the Skill tool
	Skills          []string                // names of the enabled skills; nil means all
	NoInstructions  bool                    // project instructions are not sent to the model
	OutputStyle     string                  // name of the style; empty means the default
	NoSlashCommands bool                    // no prompt is treated as a command
	// PromptCommands returns slash commands from other sources, such as the prompts of
	// MCP servers. It is called by the goroutine that owns the conversation. It may be
	// nil.
	PromptCommands func() []*PromptCommand
}

// A SessionConfig names the log of a conversation and configures it.
type SessionConfig struct {
	SessionID string
	Title     string           // of the session; empty if nobody named it
	Log       session.Log      // nil means that nothing is recorded
	History   *session.History // of a resumed session
	// Checkpoints records file contents before each prompt, for Rewind, in a part of the
	// session that LoadPart reads. If LoadPart is nil, they are kept in memory.
	Checkpoints bool
	LoadPart    func(part string) ([]json.RawMessage, error)
	// PartHistory reads a part of a session, such as the log of a subagent to resume. It
	// is called from several goroutines. If nil, sessions have no parts.
	PartHistory func(session, part string) (*session.History, error)
	// NewLog starts another session, for /clear. If nil, that session has no log.
	NewLog func(id string) (session.Log, error)
}

// An OutputConfig selects the messages for the host.
type OutputConfig struct {
	Partial bool   // emit the events of the model's stream
	Replay  bool   // emit prompts back to the host
	States  string // emit when the conversation becomes idle or busy: "sdk" for the SDK of the host only, "all" for every reader

	// Members of init.
	InitExtra    map[string]json.RawMessage // additional members
	APIKeySource string
	Version      string // of the agent that we are compatible with
	OwnVersion   string
	Platform     string // sent to the model, such as "linux"
}

// withDefaults returns the configuration with defaults in place of required members that are missing.
func (cfg Config) withDefaults() Config {
	if cfg.Env == nil {
		cfg.Env = &tool.Env{}
	}
	if cfg.Policy == nil {
		cfg.Policy = policy.New()
	}
	if cfg.Catalog == nil {
		cfg.Catalog = catalog.New()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Mode = cmp.Or(cfg.Mode, wire.ModeDefault)
	return cfg
}
