package engine

import (
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

// A Host is who a conversation talks to. Its methods are called from several
// goroutines.
type Host interface {
	// Emit takes the next message. A host that cannot take more may let it wait.
	Emit(m wire.Message)
	// CanAsk reports whether there is somebody to ask about tool calls.
	CanAsk() bool
	// Ask asks about a tool call. It returns when it is answered or ctx ends.
	// It calls sent once the question is out.
	Ask(ctx context.Context, req *wire.CanUseTool, sent func()) (*wire.PermissionResult, error)
	// Hooks calls the hooks for an event whose matcher fits the subject, all at
	// once, and returns their answers in the order of registration.
	Hooks(ctx context.Context, in wire.HookInput, subject, toolUseID string) []hook.Answer
}

// AgentParts are what an agent brings. Each of them may be missing.
type AgentParts struct {
	// Hooks calls the hooks of the agent, as [Host] does.
	Hooks func(ctx context.Context, in wire.HookInput, subject string) []hook.Answer
	// MCP holds servers of its own.
	MCP *mcp.Manager
	// Context is what it is told at its start, such as what it remembers.
	Context []string
	// Close ends what the parts run.
	Close func()
}

// A Config says what a conversation is. Nothing in it is changed.
type Config struct {
	Model      model.Model
	Catalog    *catalog.Catalog // what is known of models; nil means the built-in list
	ModelName  string           // an alias or the name of a model; empty means the catalog's default
	Fallbacks  []string         // models to try when the model is overloaded, for the rest of the turn
	MaxRetries int              // of a request to the model; negative means none, zero the default of 10
	// IdleTimeout is how long the model may be silent before its answer counts as
	// broken off. Zero means 10 minutes.
	IdleTimeout time.Duration

	// SmallModel is what tools may ask beside the conversation, such as for a summary
	// of a page: an alias or the name of a model. Empty means that they ask nothing.
	SmallModel string
	// ServerTools says that the provider of the model runs tools by itself, such as
	// web_search.
	ServerTools bool

	Tools []tool.Tool
	// Agents are the subagents that the model can start; with none there is no
	// tool to do so.
	Agents []*agents.Definition
	// Agent is what the conversation itself is; nil means none. AgentName is what it
	// is to be: until that is known nothing is answered.
	Agent     *agents.Definition
	AgentName string
	// AgentParts makes ready what an agent brings beside its prompt. Nil means that
	// it has no effect.
	AgentParts       func(*agents.Definition) (*AgentParts, error)
	ForwardSubagents bool // tell what subagents write, not only what they do
	NoSendMessage    bool // the model cannot speak to subagents that it started
	NoBackground     bool // subagents are always waited for
	SpareBackground  bool // an interrupt leaves subagents in the background alone
	// Questions names those of [QuestionTools] that the model has.
	Questions []string
	// MCP holds servers whose tools the model has as well. It may be nil. Whoever
	// made it closes it.
	MCP    *mcp.Manager
	Env    *tool.Env
	Policy *policy.Policy // rules; may be nil
	Mode   wire.PermissionMode

	AllowBypass bool // Mode may become bypassPermissions
	NoPrompts   bool // what would be asked is denied
	FixedAllows bool // nothing that is said during the conversation adds a rule that allows
	// Keep makes a change of the rules hold for conversations that follow, if its
	// destination says so, and returns the file that has it then. It is called by several
	// goroutines. Nil means that none is kept.
	Keep func(*wire.PermissionUpdate) (path string, err error)

	// Setup is why hooks for setting up run before those for the start of the session:
	// "init" or "maintenance". Empty means that they do not.
	Setup string
	// Refresh is called before a prompt is taken and before a call is judged, by
	// several goroutines, none of which owns the conversation: it may change the rules
	// if what they are from has changed. Nil means that nothing does.
	Refresh func(context.Context)

	// What the user and the project say. Project may be nil.
	Project         *project.Context
	ReadProject     func() *project.Context // reads it anew, for /clear; nil leaves it as it is
	Git             project.GitRunner       // tells the state of the repository; nil means that git is not run
	SkillTool       bool                    // the model has the Skill tool
	Skills          []string                // those that there are; nil means all
	NoInstructions  bool                    // what the project says about its files is not told
	OutputStyle     string                  // by its name; empty means the default
	NoSlashCommands bool                    // a prompt is never a command
	// PromptCommands are slash commands from elsewhere, such as the prompts of MCP
	// servers. It is called by the goroutine that owns the conversation; nil means
	// that there are none.
	PromptCommands func() []*PromptCommand

	SystemPrompt       []string // in place of our own; nil means our own
	AppendSystemPrompt string
	JSONSchema         json.RawMessage // that the answer has to fit

	Thinking Thinking
	Effort   string
	Betas    []string
	Tuning   Tuning

	// Compaction says when the conversation is replaced by a summary.
	Compaction Compaction

	MaxTurns  int   // rounds of one turn; 0 means no bound
	MaxBudget int64 // in nano-dollars; 0 means no bound

	Partial bool // tell the events of the model's stream
	Replay  bool // tell prompts back
	States  bool // tell when it becomes idle or busy

	// The session. Without a log nothing is kept.
	SessionID string
	Log       session.Log
	History   *session.History // of a session that goes on
	// Checkpoints keeps what files were before each prompt, for Rewind, in a part
	// of the session that LoadPart reads. Without that they are kept in memory.
	Checkpoints bool
	LoadPart    func(part string) ([]json.RawMessage, error)
	// PartHistory reads a part of a session, such as the log of a subagent that is to
	// go on. It is called from several goroutines. Nil means that there are none.
	PartHistory func(session, part string) (*session.History, error)
	// NewLog begins another session, for /clear. Nil means that it has no log.
	NewLog func(id string) (session.Log, error)

	// What init tells.
	InitExtra    map[string]json.RawMessage // more members of it
	APIKeySource string
	Version      string // of the agent that we are compatible with
	OwnVersion   string
	Platform     string // that the model is told, such as "linux"

	// Traces and Metrics are where OpenTelemetry's spans and measurements go; nil means
	// nowhere. Provider is how they name who answers, such as "anthropic".
	Traces   trace.TracerProvider
	Metrics  metric.MeterProvider
	Provider string

	Logger *slog.Logger
	Now    func() time.Time // nil means time.Now
}
