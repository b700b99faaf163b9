package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// owner is how other goroutines reach the one that owns a conversation.
type owner struct {
	calls chan func()     // run by the goroutine that owns the state
	over  chan struct{}   // closed when Run has returned
	base  context.Context // of Run
}

// crew is what a conversation knows of subagents.
type crew struct {
	sub     *subagent   // what it is, if another conversation started it
	brought *AgentParts // what its agent brings; nil means nothing
	stats   agentStats
	running atomic.Int64 // how many subagents run, of it and below
	brief   *brief       // for the judge of mode auto; that of the topmost conversation
}

// permissions are what calls may do.
type permissions struct {
	host       Host
	mode       wire.PermissionMode
	modeBefore wire.PermissionMode // of plan mode
	policy     *policy.Policy
	self       *narrowing // what its agent may do, if it is one and no subagent
}

// choice is which model answers, and how.
type choice struct {
	model     catalog.Info
	primary   catalog.Info // the model that was asked for; another one may stand in for it
	fallbacks []string     // models that were not tried in this turn
	effort    string
	thinking  Thinking
	betas     []string // see Config
	tuning    *Tuning  // see Config
	room      int64    // of the window, for the answer; 0 means enough
}

// toolset is the tools that the model has.
type toolset struct {
	tools   []tool.Tool
	keeps   func(tool.Tool) bool // whether it has a tool; nil means all
	offered uint64               // the generation of the tools of MCP servers among them
}

// money is what requests cost.
type money struct {
	ledger      *ledger.Ledger
	spentBefore int64 // in nano-dollars, by processes before this one
	maxBudget   int64 // see Config
}

// queue is the prompts that wait.
type queue struct {
	inbox      []*prompt
	inputEnded bool
	ended      bool            // it is over, whatever is left to do
	uuids      map[string]bool // of prompts that were taken
	unfinished *unfinishedTurn // of the process that held the session before
}

// nextPrompt takes the prompt whose turn it is: the first of those that are wanted the
// most.
func (c *queue) nextPrompt() *prompt {
	rank := func(p *prompt) int {
		switch p.m.Priority {
		case "now":
			return 0
		case "later":
			return 2
		}
		return 1 // next, which is meant where nothing is said
	}
	at := 0
	for i, p := range c.inbox {
		if rank(p) < rank(c.inbox[at]) {
			at = i
		}
	}
	p := c.inbox[at]
	c.inbox = slices.Delete(slices.Clone(c.inbox), at, at+1)
	return p
}

// beginning records what the model has been sent, and what it still needs, when a session or
// its first turn begins.
type beginning struct {
	told      told
	begun     bool     // its agent has sent its first context
	started   bool     // the hooks for the start of the session ran
	opening   string   // what a hook wants to be said before the first prompt
	fromHooks []string // what hooks of a new session tell the model with the next prompt
	notices   []string // to be told when the first turn begins
}

// current is what happens now.
type current struct {
	turn  *turn       // nil while idle
	batch *call.Batch // the calls of the answer that are not all told yet
	place *workplace  // the worktree that it works in; nil if it is in none
}

// tally is what is known of the turns so far.
type tally struct {
	results   int
	last      *wire.Result
	began     time.Time
	lastUsage *wire.Usage         // of the last answer
	limits    *wire.RateLimitInfo // as the host was told them last
}

// taskWatch is what happens beside the calls.
type taskWatch struct {
	timers    *timers         // of the topmost conversation
	forgotten map[string]bool // tasks that /clear ended
	nested    pending
	// What is not told yet. Tools add to it.
	eventsMu sync.Mutex
	events   []tool.Event
}
