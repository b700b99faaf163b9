package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// An openAsk is a question that was sent to the client.
type openAsk struct {
	call   *call // the request, nil if there is none
	cancel context.CancelCauseFunc
}

// withdraw ends a question that was answered, or whose session is closed.
func (a *openAsk) withdraw(cause error) {
	a.cancel(cause)
	if a.call != nil {
		a.call.withdraw()
	}
}

// errAnswered ends a question that was already answered.
var errAnswered = errors.New("acp: the question has an answer")

// A choice is an option of a question, with its answer.
type choice struct {
	v1.PermissionOption
	answer any
}

// askHeld sends the held questions to the client.
func (f *follower) askHeld() {
	held := f.held
	f.held = nil
	for _, q := range held {
		f.ask(q)
	}
}

// ask sends a question of the agent to the client. The request is written before ask
// returns; the answer arrives later.
func (f *follower) ask(q *hub.Ask) {
	if f.asks[q.ID] != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	f.asks[q.ID] = &openAsk{cancel: cancel}
	switch q.Kind {
	case hub.AskElicitation:
		f.elicit(ctx, q)
	case hub.AskChoice:
		f.askChoice(ctx, q)
	case hub.AskPermission, hub.AskPlan:
		f.askPermission(ctx, q)
	default: // a dialog that no editor can show
		f.answerLater(q, json.RawMessage(`{}`))
	}
}

// answerLater answers a question without sending it to the client.
func (f *follower) answerLater(q *hub.Ask, response any) {
	f.srv.conn.work.Go(func() { f.answer(q, response) })
}

// answer sends an answer to the hub. If another answer came first, that one counts.
func (e *editing) answer(q *hub.Ask, response any) {
	e.hub.Answer(e.ctx, e.id, hub.Answer{Ask: q.ID, Shown: q.Hash, Response: mustJSON(response)})
}

func deny(why string) *wire.PermissionResult {
	return &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: why}
}

// askPermission asks for permission to run a call.
func (f *follower) askPermission(ctx context.Context, q *hub.Ask) {
	var req wire.CanUseTool
	if err := json.Unmarshal(q.Request, &req); err != nil {
		f.answerLater(q, deny("The question cannot be shown."))
		return
	}
	choices := permissionChoices(&req)
	if q.Kind == hub.AskPlan {
		choices = planChoices()
	}
	f.request(ctx, q, f.subject(&req), choices)
}

// subject returns the call of a question. The client has already received it.
func (f *follower) subject(req *wire.CanUseTool) v1.ToolCallUpdate {
	s := show(req.ToolName, req.Input, f.t.cwd)
	u := v1.ToolCallUpdate{ToolCallID: req.ToolUseID, Name: req.ToolName, Title: s.title, Kind: s.kind, Status: v1.ToolCallStatusPending,
		RawInput: req.Input, Content: s.content, Locations: s.locations}
	if c := f.t.calls[req.ToolUseID]; c != nil {
		u.ToolCallID, u.Meta = c.id, c.meta()
	}
	if len(u.Locations) == 0 && req.BlockedPath != "" {
		u.Locations = located(req.BlockedPath, 0)
	}
	return u
}

// request sends a permission request and answers the question with the selected option.
func (f *follower) request(ctx context.Context, q *hub.Ask, subject v1.ToolCallUpdate, choices []choice) {
	params := &v1.RequestPermissionRequest{SessionID: f.id, ToolCall: subject}
	for _, c := range choices {
		params.Options = append(params.Options, c.PermissionOption)
	}
	call, err := f.srv.conn.send("session/request_permission", params)
	if err != nil {
		return
	}
	f.asks[q.ID].call = call
	f.srv.conn.work.Go(func() {
		var resp v1.RequestPermissionResponse
		err := call.wait(ctx, &resp)
		if ctx.Err() != nil || f.ctx.Err() != nil {
			return // it was answered, or stays open for others
		}
		switch o := resp.Outcome; {
		case err != nil:
			f.answer(q, deny("The editor could not ask: "+err.Error()))
		case o.Selected != nil:
			for _, c := range choices {
				if c.OptionID == o.Selected.OptionID {
					f.answer(q, c.answer)
					return
				}
			}
			f.answer(q, deny("The editor selected an option that was not offered."))
		default:
			f.answer(q, &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: "The user did not want to decide.", Interrupt: true})
		}
	})
}

func option(id, name string, kind v1.PermissionOptionKind, answer any) choice {
	return choice{v1.PermissionOption{OptionID: id, Name: name, Kind: kind}, answer}
}

var allow = &wire.PermissionResult{Behavior: wire.BehaviorAllow}

// refused is the reason when a person denies a call.
const refused = "The user rejected this call."

// permissionChoices returns the options of an ordinary question.
func permissionChoices(req *wire.CanUseTool) []choice {
	list := []choice{option("allow-once", "Yes", v1.PermissionOptionKindAllowOnce, allow)}
	if words := suggestion(req.PermissionSuggestions); words != "" && !req.SuppressAlwaysAllowRule {
		if !strings.HasPrefix(words, "allow all edits") {
			words = "and " + words
		}
		list = append(list, option("allow-with-updates", "Yes, "+words, v1.PermissionOptionKindAllowAlways,
			&wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedPermissions: req.PermissionSuggestions}))
	}
	return append(list, option("reject", "No", v1.PermissionOptionKindRejectOnce, deny(refused)))
}

// suggestion describes the suggestions of an agent in words.
func suggestion(list []*wire.PermissionUpdate) string {
	var words []string
	for _, u := range list {
		switch u.Type {
		case wire.UpdateSetMode:
			if u.Mode == wire.ModeAcceptEdits {
				words = append(words, "allow all edits during this session")
			} else {
				words = append(words, fmt.Sprintf("switch to the mode %s", u.Mode))
			}
		case wire.UpdateAddRules:
			if u.Behavior != wire.BehaviorAllow {
				continue
			}
			var rules []string
			for _, r := range u.Rules {
				rules = append(rules, ruleWords(r))
			}
			if len(rules) > 0 {
				words = append(words, "don't ask again for "+strings.Join(rules, ", "))
			}
		case wire.UpdateAddDirectories:
			if len(u.Directories) > 0 {
				words = append(words, "allow access to "+strings.Join(u.Directories, ", "))
			}
		}
	}
	return strings.Join(words, ", and ")
}

// ruleWords returns a rule in a form for people.
func ruleWords(r *wire.PermissionRule) string {
	content := r.RuleContent
	switch {
	case content == "":
		return r.ToolName
	case r.ToolName == "Bash":
		return strings.Replace(content, ":*", " *", 1) + " commands"
	case r.ToolName == "WebFetch":
		return strings.TrimPrefix(content, "domain:")
	}
	return r.ToolName + "(" + content + ")"
}

// planChoices returns the options of a plan.
func planChoices() []choice {
	mode := func(m wire.PermissionMode) *wire.PermissionResult {
		return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedPermissions: []*wire.PermissionUpdate{{Type: wire.UpdateSetMode, Mode: m, Destination: "session"}}}
	}
	return []choice{
		option("exit-plan-default", "Yes, and ask before edits", v1.PermissionOptionKindAllowOnce, mode(wire.ModeDefault)),
		option("exit-plan-accept-edits", "Yes, and accept edits", v1.PermissionOptionKindAllowAlways, mode(wire.ModeAcceptEdits)),
		option("reject", "No, keep planning", v1.PermissionOptionKindRejectOnce,
			&wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: "The user wants to keep planning.", Interrupt: true}),
	}
}
