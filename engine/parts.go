package engine

import (
	"slices"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// subagents is the state of a conversation that concerns subagents.
type subagents struct {
	sub     *crew.Subagent // set if the conversation is that of a subagent
	crew    *crew.Parent   // subagents that it starts
	tasks   *crew.Watch    // background tasks
	brought *AgentParts    // parts of its agent; nil means none
	first   []string       // texts that a subagent receives with its first prompt
	brief   *brief         // for the judge of mode auto; that of the topmost conversation
}

// choice is the model that answers, and its settings.
type choice struct {
	model     catalog.Info
	primary   catalog.Info // the requested model; a fallback may replace it
	fallbacks []string     // models not yet tried in this turn
	effort    string
	thinking  Thinking
	betas     []string // see Config
	tuning    *Tuning  // see Config
	room      int64    // tokens of the window left for the answer; 0 means no limit

	catalog  *catalog.Catalog
	budgeted bool // reject models without a known price
	notify   func(wire.Message)
}

// money tracks the cost of requests.
type money struct {
	ledger      *ledger.Ledger
	spentBefore int64 // in nano-dollars, by earlier processes of the session
	maxBudget   int64 // see Config

	owe   func(*session.Entry) // queues a record for the session's log
	agent string               // id of the subagent that sends the requests, if any
}

// queue holds the prompts that wait for a turn.
type queue struct {
	inbox      []*prompt
	inputEnded bool
	working    bool            // no turn runs, but subagents do, and the state is still "running"
	awake      bool            // the state "running" was emitted for a prompt that has no turn yet
	ended      bool            // the conversation is over, even if prompts are left
	uuids      map[string]bool // of accepted prompts
	timers     *timers         // of scheduled prompts; those of the topmost conversation
	unfinished *unfinishedTurn // left by an earlier process of the session
}

// nextPrompt removes the prompt to handle next from the queue: the first of those with
// the highest priority.
func (c *queue) nextPrompt() *prompt {
	rank := func(p *prompt) int {
		switch p.m.Priority {
		case "now":
			return 0
		case "later":
			return 2
		}
		return 1 // "next", the default
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

// turns is the running turn and the results of earlier ones.
type turns struct {
	turn     *turn       // nil while idle
	batch    *call.Batch // calls of the answer, until all their results are emitted
	results  int
	refusals int  // how often a safety check of the provider stopped the model in this conversation
	failed   bool // the result of the last turn was an error
	began    time.Time
}
