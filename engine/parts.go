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

// subagents is what a conversation knows of subagents.
type subagents struct {
	sub     *crew.Subagent // what it is, if another conversation started it
	crew    *crew.Parent   // of those that it starts
	tasks   *crew.Watch    // of those that run beside the calls
	brought *AgentParts    // what its agent brings; nil means nothing
	first   []string       // what a subagent receives with its first prompt
	brief   *brief         // for the judge of mode auto; that of the topmost conversation
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

	catalog  *catalog.Catalog
	budgeted bool // models need a known price
	notify   func(wire.Message)
}

// money is what requests cost.
type money struct {
	ledger      *ledger.Ledger
	spentBefore int64 // in nano-dollars, by processes before this one
	maxBudget   int64 // see Config

	owe   func(*session.Entry) // has the log of the session get a record
	agent string               // whose requests they are, if they are a subagent's
}

// queue is the prompts that wait.
type queue struct {
	inbox      []*prompt
	inputEnded bool
	awake      bool            // the state "running" was emitted for a prompt that has no turn yet
	ended      bool            // it is over, whatever is left to do
	uuids      map[string]bool // of prompts that were taken
	timers     *timers         // of prompts to come; of the topmost conversation
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

// turns is the turn that runs, and what is known of those before.
type turns struct {
	turn    *turn       // nil while idle
	batch   *call.Batch // the calls of the answer that are not all told yet
	results int
	last    *wire.Result
	began   time.Time
}
