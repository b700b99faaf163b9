package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// An AnsweredError means that an answer came too late.
type AnsweredError struct {
	Answer Answer // the one that was accepted
}

// Error names who answered.
func (e *AnsweredError) Error() string {
	if e.Answer.Outcome == Answered {
		return "hub: the question was answered by " + e.Answer.By.Name
	}
	return "hub: the question has no answer any more: it was " + string(e.Answer.Outcome)
}

// ErrNotShown means that an answer is for a different question: its Shown is not the
// question's hash.
var ErrNotShown = errors.New("hub: the answer is for another question than the one that is open")

// newAsk makes a question from a request of the agent.
func (r *room) newAsk(req wire.Request) (*Ask, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return nil, err
	}
	a := &Ask{ID: session.NewID(), Request: line.Bytes()}
	switch req := req.(type) {
	case *wire.CanUseTool:
		a.Kind, a.Tool, a.ToolUseID = AskPermission, req.ToolName, req.ToolUseID
		switch req.ToolName {
		case "ExitPlanMode":
			a.Kind = AskPlan
		case "AskUserQuestion":
			a.Kind = AskChoice
		}
		if describe := r.hub.cfg.Describe; describe != nil {
			a.Paths, a.Diff = describe(req)
		}
	case *wire.Elicitation:
		a.Kind = AskElicitation
	case *wire.RequestUserDialog:
		a.Kind, a.ToolUseID = AskDialog, req.ToolUseID
	default:
		return nil, fmt.Errorf("hub: %s is not a question", req.Subtype())
	}
	if d := r.hub.cfg.AskExpiry; d > 0 {
		at := time.Now().Add(d).UTC().Truncate(time.Millisecond)
		a.Expires = &at
	}
	a.Hash = a.hash()
	return a, nil
}

// call returns a hash of the call that a question is about, without its id. A repeated
// call has the same hash.
func (a *Ask) call() string {
	var in struct {
		Tool  string          `json:"tool_name"`
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal(a.Request, &in); in.Tool == "" {
		return hashOf(a.Request)
	}
	return hashOf(mustJSON([]any{in.Tool, canonical(in.Input)}))
}

// canonical returns decoded JSON, which encodes with its members in order.
func canonical(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	return v
}

// ask records a question of the agent and waits for its answer.
func (a *agentRun) ask(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	q, err := a.r.newAsk(req.Request)
	if err != nil {
		return nil, err
	}
	a.inOrder(ctx)
	ch := make(chan *Answer, 1)
	w := &hostAsk{r: a.r, ask: q, req: req}
	w.ctx, w.cancel = context.WithCancel(ctx)
	defer w.cancel()
	err = a.r.do(ctx, func(x *tx) error {
		r := a.r
		if r.agent != a {
			return ErrClosed
		}
		if old := r.fold.sameAsk(q, a.from); old != nil {
			if old.answer == nil {
				q = &old.Ask
			} else if old.ToolUseID == q.ToolUseID {
				ch <- old.answer
				return nil
			} else { // an answer that was kept for the next identical call
				kept := *old.answer
				kept.Ask, kept.Kept = q.ID, old.ID
				x.append(KindAsk, mustJSON(q), nil)
				x.append(KindAnswer, mustJSON(&kept), nil)
				ch <- &kept
				return nil
			}
		} else {
			x.append(KindAsk, mustJSON(q), nil)
		}
		r.waiters[q.ID] = ch
		w.ask = q
		r.hostAsks[q.ID] = w
		w.forward(r.host)
		return nil
	})
	if err != nil {
		return nil, a.unanswered(err)
	}
	defer a.r.post(context.Background(), func(*tx) error {
		if a.r.waiters[q.ID] == ch {
			delete(a.r.waiters, q.ID)
			delete(a.r.hostAsks, q.ID)
		}
		return nil
	})
	select {
	case ans := <-ch:
		return q.response(ans), nil
	case <-ctx.Done():
	}
	// An agent that ends because another process took over its session withdraws nothing.
	alive := func(*tx) error { return nil }
	if errors.Is(context.Cause(ctx), parley.ErrWithdrawn) && a.r.do(a.ctx, alive) == nil {
		a.r.putAnswer(&Answer{Ask: q.ID, By: Actor{Name: "agent"}, Outcome: Withdrawn})
	}
	// The question stays open: the agent has ended, and asks again when it continues.
	return nil, parley.ErrNoAnswer
}

// unanswered returns the error for a request that was not handled. If the room ends,
// the agent gets no response: it ends, too, and asks again when it continues.
func (a *agentRun) unanswered(err error) error {
	if a.r.ctx.Err() != nil || errors.Is(err, ErrClosed) {
		return parley.ErrNoAnswer
	}
	return err
}

// sameAsk returns the question that is the same as q: one about the same call, or one
// about an identical call from an agent that is gone, asked before the number from.
func (f *fold) sameAsk(q *Ask, from uint64) *askState {
	call := q.call()
	for _, list := range [][]string{f.openAsks, f.unspent} {
		for _, id := range list {
			if a := f.asks[id]; a.Kind == q.Kind && a.ToolUseID == q.ToolUseID && a.call() == call {
				return a
			}
		}
	}
	for _, id := range f.unspent {
		if a := f.asks[id]; a.Kind == q.Kind && a.n <= from && a.answer.Outcome == Answered && a.call() == call {
			return a
		}
	}
	return nil
}

// response returns the response that the agent receives.
func (a *Ask) response(ans *Answer) json.RawMessage {
	deny := func(why string) json.RawMessage {
		switch a.Kind {
		case AskElicitation:
			return json.RawMessage(`{"action":"cancel"}`)
		case AskDialog:
			return json.RawMessage(`{}`)
		}
		return mustJSON(&wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: why, ToolUseID: a.ToolUseID})
	}
	switch ans.Outcome {
	case Expired:
		return deny("Nobody answered in time, so the call is not allowed.")
	case Withdrawn:
		return deny("The question was withdrawn.")
	}
	if a.Kind == AskElicitation || a.Kind == AskDialog {
		return ans.Response
	}
	var res wire.PermissionResult
	var in struct {
		Input json.RawMessage `json:"input"`
	}
	if json.Unmarshal(ans.Response, &res) != nil || json.Unmarshal(a.Request, &in) != nil {
		return deny("The answer cannot be read.")
	}
	switch res.Behavior {
	case wire.BehaviorAllow:
		if res.UpdatedInput == nil { // agents expect it
			res.UpdatedInput = in.Input
		}
	case wire.BehaviorDeny:
		if res.Message == "" {
			res.Message = "The call was not allowed."
		}
	default:
		return deny("The answer is neither allow nor deny.")
	}
	res.ToolUseID = a.ToolUseID
	return mustJSON(&res)
}

// expired reports whether an answer at a given time is too late.
func (a *Ask) expired(at time.Time) bool { return a.Expires != nil && !at.Before(*a.Expires) }

// check returns an error unless an actor may give this answer.
func (a *Ask) check(by Actor, ans *Answer) error {
	if err := by.need(MayApprove, "answer questions"); err != nil {
		return err
	}
	if ans.Shown != a.Hash {
		return ErrNotShown
	}
	if a.Kind == AskElicitation || a.Kind == AskDialog {
		if !json.Valid(ans.Response) {
			return errors.New("hub: the answer is not JSON")
		}
		return nil
	}
	var res wire.PermissionResult
	if err := json.Unmarshal(ans.Response, &res); err != nil {
		return fmt.Errorf("hub: the answer cannot be read: %w", err)
	}
	if res.Behavior != wire.BehaviorAllow && res.Behavior != wire.BehaviorDeny {
		return fmt.Errorf("hub: the answer is %q, which is neither allow nor deny", res.Behavior)
	}
	if len(res.UpdatedPermissions) > 0 {
		if err := by.need(MayDrive, "add rules"); err != nil {
			return err
		}
	}
	if res.UpdatedInput != nil && !a.sameInput(res.UpdatedInput) {
		return by.need(MayDrive, "change the input of a call")
	}
	return nil
}

// sameInput reports whether an input is that of the call. Answers to the model's own
// questions do not count as a change.
func (a *Ask) sameInput(input json.RawMessage) bool {
	var in struct {
		Input json.RawMessage `json:"input"`
	}
	json.Unmarshal(a.Request, &in)
	was, now := canonical(in.Input), canonical(input)
	if a.Kind == AskChoice {
		for _, v := range []any{was, now} {
			if m, ok := v.(map[string]any); ok {
				delete(m, "answers")
				delete(m, "annotations")
			}
		}
	}
	return bytes.Equal(mustJSON(was), mustJSON(now))
}

// expire denies the questions that have expired. It returns how long to wait before
// looking again.
func (r *room) expire(now time.Time) time.Duration {
	next := time.Hour
	for _, id := range r.fold.openAsks {
		a := r.fold.asks[id]
		if a.Expires == nil {
			continue
		}
		if wait := max(a.Expires.Sub(now), r.expiring[id].Sub(now)); wait > 0 {
			next = min(next, wait)
			continue
		}
		r.expiring[id] = now.Add(putTime) // then retry, in case it failed
		ans := &Answer{Ask: id, By: Actor{Name: r.hub.cfg.Name}, Outcome: Expired}
		r.spawn(func(context.Context) { r.putAnswer(ans) })
	}
	return next
}

// putTime is how long the hub tries to store its own answer.
const putTime = 10 * time.Second

// putAnswer puts an answer of the hub itself into the inbox. Another answer may already
// be there.
func (r *room) putAnswer(ans *Answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), putTime)
	defer cancel()
	_, err := r.hub.cfg.Backend.Put(ctx, r.id, answerItem(ans))
	if err != nil && r.hub.cfg.Logger != nil {
		r.hub.cfg.Logger.Warn("an answer could not be stored", "error", err)
	}
}

// Prefixes of the keys of inbox items.
const (
	promptKey  = "prompt/"
	answerKey  = "answer/"
	controlKey = "control/"
)

func answerItem(ans *Answer) Item {
	return Item{Key: answerKey + ans.Ask, Time: time.Now(), Data: mustJSON(ans)}
}

// consumeAll consumes all items that are in the inbox now.
func (r *room) consumeAll(ctx context.Context) error {
	from := uint64(0)
	if err := r.do(ctx, func(*tx) error { from = r.fold.item; return nil }); err != nil {
		return err
	}
	for item, err := range r.hub.cfg.Backend.Inbox(ctx, r.id, from, false) {
		if err == nil {
			err = r.do(ctx, func(x *tx) error {
				if r.lease == nil {
					return ErrLocked
				}
				r.consume(x, item)
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// consume appends an entry for an item of the inbox.
func (r *room) consume(x *tx, item Item) {
	if item.Number <= r.fold.item {
		return
	}
	mark := func(e *Entry) { e.Item = item.Number }
	switch {
	case bytes.HasPrefix([]byte(item.Key), []byte(promptKey)):
		var p Prompt
		if json.Unmarshal(item.Data, &p) == nil && r.fold.prompts[p.UUID] == nil {
			x.append(KindPrompt, item.Data, mark)
			return
		}
	case bytes.HasPrefix([]byte(item.Key), []byte(answerKey)):
		var ans Answer
		if json.Unmarshal(item.Data, &ans) == nil && r.fold.asks[ans.Ask] != nil && r.fold.asks[ans.Ask].answer == nil {
			if ans.Outcome == Answered && r.fold.asks[ans.Ask].expired(item.Time) {
				ans = Answer{Ask: ans.Ask, By: Actor{Name: r.hub.cfg.Name}, Outcome: Expired}
				item.Data = mustJSON(&ans)
			}
			x.append(KindAnswer, item.Data, mark)
			if ch := r.waiters[ans.Ask]; ch != nil {
				ch <- &ans
				delete(r.waiters, ans.Ask)
				delete(r.hostAsks, ans.Ask)
			}
			return
		}
	case bytes.HasPrefix([]byte(item.Key), []byte(controlKey)):
		var c Control
		if json.Unmarshal(item.Data, &c) == nil {
			x.append(KindControl, item.Data, mark)
			if a := r.agent; a != nil && a.client != nil {
				r.spawn(func(ctx context.Context) {
					a.client.Call(ctx, &wire.UnknownRequest{Name: subtypeOf(c.Request), Raw: c.Request}, nil)
				})
			}
			return
		}
	}
	x.append(KindDropped, mustJSON(Dropped{By: Actor{Name: r.hub.cfg.Name}, Reason: "the item " + item.Key + " of the inbox is of no use"}), mark)
}
