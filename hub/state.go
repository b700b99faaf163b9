package hub

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-go/parley/wire"
)

// A fold is the state of a session, computed from the entries of its journal. Only add changes
// it, so that every reader of the same journal has the same one.
type fold struct {
	n       uint64 // the last number
	first   uint64 // the first number that was not trimmed
	epoch   uint64 // of the current owner
	owner   string
	item    uint64 // the last consumed inbox item
	created *Created
	agentID string // id of the agent's session, which /clear changes

	prompts  map[string]*promptState // all that were accepted, by uuid
	queue    []string                // prompts that were not consumed, in order
	running  []string                // prompts that were consumed and have no result
	midTurn  bool                    // a turn is running
	stopped  bool                    // the turn was interrupted and must not continue
	asks     map[string]*askState    // by id
	openAsks []string                // in order
	unspent  []string                // answered questions whose calls have no result
	tasks    []Task
	host     *HostChange
	hostN    uint64
	resumeAt string            // the message after which the conversation continues after a rewind
	covered  string            // the last record whose frame was trimmed
	sticky   []json.RawMessage // requests that apply until the next one of their kind, in order
	settings settings          // of sticky
	echoes   []string          // modes that were requested and that the agent has not reported yet, in order
	granted  []json.RawMessage // rule changes that answers made for the session, in order
	problem  string
	title    string
	archived bool
	cost     float64 // of all turns
	total    float64 // in the last result

	since time.Time
	phase Phase
	dirty bool // the state that viewers see has changed
}

type promptState struct {
	Prompt
	said     string // the hash of its message; empty if it was trimmed
	n        uint64
	consumed bool
	over     bool
}

type askState struct {
	Ask
	n      uint64
	answer *Answer // nil while it is open
}

func newFold() *fold {
	return &fold{prompts: map[string]*promptState{}, asks: map[string]*askState{}, phase: Idle}
}

// add applies an entry. An entry that cannot be read changes nothing: it may be from a later
// version.
func (f *fold) add(e *Entry) {
	if e.N > 0 {
		f.n = e.N
		if f.first == 0 {
			f.first = e.N
		}
	}
	f.item = max(f.item, e.Item)
	switch e.Kind {
	case KindFrame:
		f.frame(e)
	case KindOwner:
		if o := decode[Owner](e); o != nil {
			f.epoch, f.owner, f.dirty = e.N, o.Hub, true
			f.tasks = nil // they ended with the agent
		}
	case KindPrompt:
		if p := decode[Prompt](e); p != nil && f.prompts[p.UUID] == nil {
			f.prompts[p.UUID] = &promptState{Prompt: *p, said: hashPrompt(p.Message), n: e.N}
			f.queue = append(f.queue, p.UUID)
			f.problem, f.dirty = "", true
		}
	case KindDropped:
		if d := decode[Dropped](e); d != nil {
			f.finish(d.UUID)
		}
	case KindAsk:
		if a := decode[Ask](e); a != nil && f.asks[a.ID] == nil {
			f.asks[a.ID] = &askState{Ask: *a, n: e.N}
			f.openAsks = append(f.openAsks, a.ID)
			f.dirty = true
		}
	case KindAnswer:
		f.answer(decode[Answer](e))
	case KindChanged:
		if c := decode[Changed](e); c != nil && f.created != nil {
			created := *f.created
			created.Spec = c.Spec
			f.created = &created
		}
	case KindControl:
		if c := decode[Control](e); c != nil {
			before := f.settings.mode
			if f.control(c.Request); f.settings.mode != before {
				f.echoes = append(f.echoes, f.settings.mode)
			}
		}
	case KindHost:
		if h := decode[HostChange](e); h != nil {
			f.host, f.hostN, f.dirty = h, e.N, true
			if h.Initialize == nil {
				f.host = nil
			}
		}
	case KindEnded:
		if x := decode[Ended](e); x != nil {
			for _, uuid := range x.Prompts {
				f.finish(uuid)
			}
			f.endTurn()
			if x.Holds || len(f.queue) == 0 { // otherwise the session continues with the next prompt
				f.problem = x.Reason
			}
		}
	default:
		f.addWhole(e)
	}
	f.rephase(e.Time)
}

// addWhole applies an entry about the session as a whole.
func (f *fold) addWhole(e *Entry) {
	switch e.Kind {
	case KindCreated, KindForked:
		if c := decode[Created](e); c != nil {
			f.created, f.agentID, f.title, f.dirty = c, c.Session, c.Title, true
		}
	case KindRewound:
		if r := decode[Rewound](e); r != nil {
			f.resumeAt = r.To
		}
	case KindTrimmed:
		if t := decode[Trimmed](e); t != nil && e.N > 0 {
			f.restore(t)
		}
	case KindArchived:
		if a := decode[Archived](e); a != nil {
			f.archived, f.dirty = a.Archived, true
		}
	case KindCleared:
		if c := decode[Cleared](e); c != nil {
			f.agentID, f.resumeAt = c.Session, ""
		}
	}
}

// answer applies the answer to a question.
func (f *fold) answer(a *Answer) {
	if a == nil || f.asks[a.Ask] == nil || f.asks[a.Ask].answer != nil {
		return
	}
	f.asks[a.Ask].answer = a
	f.openAsks = without(f.openAsks, a.Ask)
	f.dirty = true
	switch a.Outcome {
	case Answered:
		f.unspent = append(f.unspent, a.Ask)
		f.grant(a.Response)
	case Expired: // it denies the request, also for an agent that continues its turn later
		f.unspent = append(f.unspent, a.Ask)
	}
	if a.Kept != "" { // it was for one call
		f.unspent = without(f.unspent, a.Kept)
	}
}

// grant applies the changes of the rules that an answer makes for the session. The agent keeps
// them only in memory, and the next one needs them, too.
func (f *fold) grant(response json.RawMessage) {
	var r struct{ Behavior, UpdatedPermissions json.RawMessage }
	var updates []json.RawMessage
	if json.Unmarshal(response, &r) != nil || string(r.Behavior) != `"allow"` || json.Unmarshal(r.UpdatedPermissions, &updates) != nil {
		return
	}
	for _, u := range updates {
		var to struct{ Type, Destination string }
		// The mode comes back in a message of the agent.
		if json.Unmarshal(u, &to) == nil && to.Destination == "session" && to.Type != "setMode" && !slices.ContainsFunc(f.granted, func(old json.RawMessage) bool { return string(old) == string(u) }) {
			f.granted = append(f.granted, u)
		}
	}
}

// trimmed returns the state from the entries below a number that is needed after they are
// removed. The session is idle.
func (f *fold) trimmed(before uint64) *Trimmed {
	t := &Trimmed{Before: before, Created: f.created, Session: f.agentID, Title: f.title, Item: f.item, Sticky: f.sticky, Granted: f.granted, Host: f.host, HostN: f.hostN, Rewound: f.resumeAt, Archived: f.archived, Cost: f.cost, Total: f.total}
	for uuid, p := range f.prompts {
		if p.n < before {
			t.Prompts = append(t.Prompts, uuid)
		}
	}
	slices.Sort(t.Prompts)
	return t
}

// restore applies the result of trimmed, if the entries are gone.
func (f *fold) restore(t *Trimmed) {
	if f.created == nil {
		f.created = t.Created
	}
	f.covered, f.granted = t.Record, t.Granted
	f.agentID, f.title, f.item, f.sticky, f.resumeAt, f.archived = t.Session, t.Title, max(f.item, t.Item), t.Sticky, t.Rewound, t.Archived
	f.cost, f.total = t.Cost, t.Total
	f.settings, f.echoes = settings{}, nil
	for _, request := range f.sticky {
		f.settings.apply(request)
	}
	if f.host, f.hostN = t.Host, t.HostN; f.first > 0 {
		f.first = max(f.first, min(t.Before, f.n))
	}
	for _, uuid := range t.Prompts {
		if f.prompts[uuid] == nil {
			f.prompts[uuid] = &promptState{Prompt: Prompt{UUID: uuid}, consumed: true, over: true}
		}
	}
}

func decode[T any](e *Entry) *T {
	v := new(T)
	if json.Unmarshal(e.Data, v) != nil {
		return nil
	}
	return v
}

func without(list []string, s string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return x == s })
}

// frame applies a message of the agent.
func (f *fold) frame(e *Entry) {
	switch wire.PeekType(e.Data) {
	case "assistant":
		// It may be from a turn that ended long ago, outside, or from a subagent in the
		// background. Most messages are in the middle of a turn: opening a session with
		// thousands of them waits for this.
		if e.Recovered || f.midTurn {
			return
		}
		var m struct {
			Parent string `json:"parent_tool_use_id"`
		}
		if json.Unmarshal(e.Data, &m); m.Parent == "" {
			f.begin()
		}
		return
	case "user":
		if p := f.prompts[e.Record]; p != nil && !p.consumed {
			p.consumed = true
			f.queue = without(f.queue, e.Record)
			if !p.over {
				f.running = append(f.running, e.Record)
			}
			f.resumeAt, f.dirty = "", true
			f.begin()
		}
		f.spend(e.Data)
		return
	case "stream_event":
		return
	}
	m, err := wire.Decode(e.Data)
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *wire.Init:
		if !e.Recovered {
			f.begin()
		}
	case *wire.Status:
		f.reportedMode(string(m.PermissionMode))
	case *wire.Result:
		if m.IsReplay {
			return
		}
		ids := m.UserMessageUUIDs
		if len(ids) == 0 && m.UserMessageUUID != "" {
			ids = []string{m.UserMessageUUID}
		}
		for _, id := range append(slices.Clone(f.running), ids...) { // everything that joined the turn ends with it
			f.finish(id)
		}
		// Totals accumulate from the start of the agent's session, which may have started more than once.
		if m.TotalCostUSD >= f.total {
			f.cost -= f.total
		}
		f.cost += m.TotalCostUSD
		f.total = m.TotalCostUSD
		f.endTurn()
	case *wire.TaskStarted:
		if m.IsBackgrounded == nil || *m.IsBackgrounded {
			f.tasks = append(f.withoutTask(m.TaskID), Task{ID: m.TaskID, Type: m.TaskType, Description: m.Description})
			f.dirty = true
		}
	case *wire.TaskUpdated:
		switch m.Patch.Status {
		case "completed", "failed", "killed", "stopped":
			f.tasks, f.dirty = f.withoutTask(m.TaskID), true
		}
	case *wire.TaskNotification:
		f.tasks, f.dirty = f.withoutTask(m.TaskID), true
	case *wire.BackgroundTasksChanged:
		f.tasks, f.dirty = nil, true
		for _, t := range m.Tasks {
			if t == nil {
				continue // an agent sent null
			}
			f.tasks = append(f.tasks, Task{ID: t.TaskID, Type: t.TaskType, Description: t.Description})
		}
	}
}

// consumed reports whether the agent has a prompt already.
func (f *fold) consumed(uuid string) bool {
	p := f.prompts[uuid]
	return p != nil && p.consumed
}

// awaits reports whether a result that was found in the log ends a turn that has none yet.
func (f *fold) awaits(result json.RawMessage) bool {
	var r struct {
		UUIDs []string `json:"user_message_uuids"`
	}
	json.Unmarshal(result, &r)
	for _, uuid := range r.UUIDs {
		if p := f.prompts[uuid]; p != nil {
			return !p.over
		}
	}
	return f.midTurn && len(f.running)+len(f.queue) == 0 // a turn that no prompt started
}

func (f *fold) withoutTask(id string) []Task {
	return slices.DeleteFunc(slices.Clone(f.tasks), func(t Task) bool { return t.ID == id })
}

// spend removes the answers of calls that have results, because they apply to no other call.
func (f *fold) spend(frame json.RawMessage) {
	if len(f.unspent) == 0 {
		return
	}
	var m struct {
		Message struct{ Content []block }
	}
	if json.Unmarshal(frame, &m) != nil {
		return // the content is a string
	}
	for _, b := range m.Message.Content {
		if b.Type != "tool_result" {
			continue
		}
		for _, id := range f.unspent {
			if a := f.asks[id]; a.ToolUseID == b.ToolUseID {
				f.unspent = without(f.unspent, id)
				a.Request, a.Diff = nil, "" // it is not needed any more
			}
		}
	}
}

// A block is a content block of a message.
type block struct {
	Type      string
	ToolUseID string `json:"tool_use_id"`
}

func (f *fold) begin() {
	if !f.midTurn {
		f.midTurn, f.stopped, f.dirty = true, false, true
	}
}

func (f *fold) endTurn() {
	f.midTurn, f.stopped, f.running, f.dirty = false, false, nil, true
}

// finish marks a prompt as done.
func (f *fold) finish(uuid string) {
	if p := f.prompts[uuid]; p != nil {
		p.over, p.Message = true, nil
	}
	f.queue, f.running, f.dirty = without(f.queue, uuid), without(f.running, uuid), true
}

// settings are the settings of the agent that requests have changed.
type settings struct{ mode, model, effort string }

// apply applies a control request.
func (s *settings) apply(request json.RawMessage) {
	var r struct {
		Subtype, Mode, Model string
		Settings             map[string]json.RawMessage
	}
	json.Unmarshal(request, &r)
	switch r.Subtype {
	case "set_permission_mode":
		s.mode = cmp.Or(r.Mode, s.mode)
	case "set_model":
		s.model = cmp.Or(r.Model, "default")
	case "apply_flag_settings":
		if level, ok := r.Settings["effortLevel"]; ok {
			if s.effort = "default"; json.Unmarshal(level, &s.effort) == nil {
				s.effort = cmp.Or(s.effort, "default")
			}
		}
	}
}

// reportedMode applies a mode that the agent reported. An agent responds to a request for a mode first
// and reports it later, when the next mode may have been requested already.
func (f *fold) reportedMode(mode string) {
	if mode == "" {
		return
	}
	i := slices.Index(f.echoes, mode)
	if f.echoes = f.echoes[i+1:]; i < 0 {
		f.echoes = nil // a change by an answer, or by the end of a plan
	}
	if len(f.echoes) == 0 {
		f.control(mustJSON(map[string]any{"subtype": "set_permission_mode", "mode": mode}))
	}
}

// control applies a control request that was sent to the agent.
func (f *fold) control(request json.RawMessage) {
	var r struct {
		Subtype string
		Title   string
	}
	json.Unmarshal(request, &r)
	before := f.settings
	if f.settings.apply(request); f.settings != before {
		f.dirty = true
	}
	switch r.Subtype {
	case "interrupt", "end_session":
		f.stopped = true
	case "set_model", "set_permission_mode", "set_max_thinking_tokens":
		f.sticky = append(slices.DeleteFunc(f.sticky, func(old json.RawMessage) bool { return subtypeOf(old) == r.Subtype }), request)
	case "apply_flag_settings":
		f.sticky = append(f.sticky, request)
	case "rename_session":
		f.title, f.dirty = r.Title, true
	}
}

// request returns the request that set the mode, the model or the limit of thinking, nil if none did.
func (f *fold) request(name string) json.RawMessage {
	i := slices.IndexFunc(f.sticky, func(old json.RawMessage) bool { return name != "apply_flag_settings" && subtypeOf(old) == name })
	if i < 0 {
		return nil
	}
	return f.sticky[i]
}

func subtypeOf(request json.RawMessage) string {
	var r struct{ Subtype string }
	json.Unmarshal(request, &r)
	return r.Subtype
}

// rephase updates the phase.
func (f *fold) rephase(at time.Time) {
	phase := Idle
	switch {
	case len(f.openAsks) > 0:
		phase = RequiresAction
	case f.midTurn || len(f.running) > 0 || len(f.queue) > 0 && f.problem == "":
		phase = Running
	}
	if phase != f.phase || f.since.IsZero() {
		f.phase, f.since, f.dirty = phase, at, true
	}
}

// state returns the state that viewers see.
func (f *fold) state() *State {
	s := &State{Phase: f.phase, Since: f.since, N: f.n, Queued: slices.Clone(f.queue), Tasks: slices.Clone(f.tasks), Title: f.title, Archived: f.archived, CostUSD: f.cost, Problem: f.problem,
		Mode: f.settings.mode, Model: f.settings.model, Effort: f.settings.effort}
	if c := f.created; c != nil {
		s.Cwd, s.Session, s.Worktree, s.by = c.Cwd, f.agentID, c.Worktree, c.By
	}
	for _, id := range f.openAsks {
		a := f.asks[id]
		s.Waiting = append(s.Waiting, Waiting{Kind: "ask", ID: id, About: a.about(), Expires: a.Expires})
	}
	if f.host != nil {
		s.Host = &HostState{By: f.host.By, Epoch: f.hostN}
	}
	return s
}

func (a *Ask) about() string {
	if a.Tool != "" {
		return a.Tool
	}
	return string(a.Kind)
}
