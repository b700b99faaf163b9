package parley

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-go/parley/wire"
)

// CanUseTool decides about a tool call that no rule of the agent decides. It returns
// [Allow], [AllowInput], [AllowAlways], [Deny] or [DenyAndStop], or [Answer] for
// questions.
//
// Calls for several tools may run concurrently, each in its own goroutine; they may call
// methods of the [Client]. ctx ends when the agent cancels the request. If the
// function fails, panics or returns nil, the call is denied.
type CanUseTool func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error)

// Allow allows the tool to run.
func Allow() *wire.PermissionResult {
	return &wire.PermissionResult{Behavior: wire.BehaviorAllow}
}

// AllowInput allows the tool to run with another input, which is encoded as JSON.
func AllowInput(input any) *wire.PermissionResult {
	raw, err := json.Marshal(input)
	if err != nil {
		return Deny(fmt.Sprintf("the changed input cannot be encoded: %v", err))
	}
	return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: raw}
}

// AllowAlways allows the tool to run and applies the agent's suggestions, if any, so
// that the agent need not ask again.
func AllowAlways(req *wire.CanUseTool) *wire.PermissionResult {
	return &wire.PermissionResult{
		Behavior:           wire.BehaviorAllow,
		UpdatedPermissions: slices.Clone(req.PermissionSuggestions),
	}
}

// Deny denies the tool call. The model receives the reason and continues.
func Deny(reason string) *wire.PermissionResult {
	return &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: reason}
}

// DenyAndStop denies the tool call and ends the turn.
func DenyAndStop(reason string) *wire.PermissionResult {
	return &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: reason, Interrupt: true}
}

// A Question is a question of the model to the user, asked with the AskUserQuestion
// tool.
type Question struct {
	Question    string           `json:"question"`    // the key of [Answer]
	Header      string           `json:"header"`      // a short label
	Options     []QuestionOption `json:"options"`     // the choices
	MultiSelect bool             `json:"multiSelect"` // several options may be chosen
}

// A QuestionOption is one possible answer.
type QuestionOption struct {
	Label       string `json:"label"`            // the value for [Answer]
	Description string `json:"description"`      // the consequence of choosing it
	Preview     string `json:"preview,omitzero"` // an example of the result; may be empty
}

// Questions returns the questions of a call to AskUserQuestion, and whether the call is
// one: then [Answer] answers it, and [Deny] skips it.
func Questions(req *wire.CanUseTool) ([]Question, bool) {
	if req.ToolName != "AskUserQuestion" {
		return nil, false
	}
	var in struct {
		Questions []Question `json:"questions"`
	}
	if json.Unmarshal(req.Input, &in) != nil || len(in.Questions) == 0 {
		return nil, false
	}
	return in.Questions, true
}

// Answer answers the questions of a call for which [Questions] returned true. answers
// maps the text of a question to the labels that were chosen, or to the user's own text.
func Answer(req *wire.CanUseTool, answers map[string][]string) *wire.PermissionResult {
	var input map[string]json.RawMessage
	if err := json.Unmarshal(req.Input, &input); err != nil || input == nil {
		return Deny("the question cannot be read")
	}
	joined := make(map[string]string, len(answers))
	for q, labels := range answers {
		joined[q] = strings.Join(labels, ", ")
	}
	input["answers"], _ = json.Marshal(joined)
	return AllowInput(input)
}

// Plan returns the plan that the model proposes if the call asks to leave plan mode:
// then [Allow] approves it, and [Deny] rejects it, with the changes to make as the
// reason. The plan is empty if the agent keeps it in a file.
func Plan(req *wire.CanUseTool) (plan string, ok bool) {
	if req.ToolName != "ExitPlanMode" {
		return "", false
	}
	var in struct {
		Plan string `json:"plan"`
	}
	json.Unmarshal(req.Input, &in)
	return in.Plan, true
}

// readOneWay returns an error if an input is ambiguous: then the person who approves it
// may see another value than the one that the tool uses. Package encoding/json uses the
// last of equal names, and ignores their case.
func readOneWay(tool string, input json.RawMessage) error {
	if len(input) == 0 {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(input)) // rejects invalid UTF-8 and duplicate names
	var names []map[string]bool                      // of the enclosing objects
	for {
		t, err := d.ReadToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the input of %s is not valid: %w", tool, err)
		}
		switch t.Kind() {
		case '{':
			names = append(names, map[string]bool{})
		case '[':
			names = append(names, nil)
		case '}', ']':
			names = names[:len(names)-1]
		case '"':
			// The index is odd after a member name. Tools of MCP servers may have
			// parameters that differ only in case.
			kind, n := d.StackIndex(d.StackDepth())
			if kind != '{' || n%2 == 0 || strings.HasPrefix(tool, "mcp__") {
				continue
			}
			seen, key := names[len(names)-1], strings.ToLower(strings.ToUpper(t.String()))
			if seen[key] {
				return fmt.Errorf("the input of %s has two members whose names differ in case only: %q", tool, t.String())
			}
			seen[key] = true
		}
	}
}

// canUseTool handles the agent's request for permission.
func (s *session) canUseTool(ctx context.Context, req *wire.CanUseTool) (any, error) {
	if s.cfg.canUseTool == nil {
		return nil, errors.New("no CanUseTool callback is set; the call is not allowed")
	}
	res, err := guard(s, "CanUseTool", func() (*wire.PermissionResult, error) {
		if err := readOneWay(req.ToolName, req.Input); err != nil {
			return nil, err
		}
		res, err := s.cfg.canUseTool(ctx, req)
		switch {
		case err != nil:
		case res == nil:
			err = errors.New("it returned no decision")
		case res.Behavior != wire.BehaviorAllow && res.Behavior != wire.BehaviorDeny:
			err = fmt.Errorf("it decided %q, which is neither allow nor deny", res.Behavior)
		}
		return res, err
	})
	if err != nil {
		res = Deny(fmt.Sprintf("The call was not allowed because the permission check failed: %v", err))
	}
	answer := *res
	switch answer.Behavior {
	case wire.BehaviorAllow:
		if answer.UpdatedInput == nil {
			answer.UpdatedInput = req.Input
		}
		if answer.UpdatedInput == nil {
			answer.UpdatedInput = json.RawMessage("{}")
		}
	case wire.BehaviorDeny:
		if answer.Message == "" {
			answer.Message = "The call was not allowed."
		}
	}
	if answer.ToolUseID == "" {
		answer.ToolUseID = req.ToolUseID
	}
	return &answer, nil
}

// elicitation handles a question of an MCP server.
func (s *session) elicitation(ctx context.Context, req *wire.Elicitation) (any, error) {
	if s.cfg.onElicit == nil {
		return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
	}
	res, err := guard(s, "OnElicitation", func() (*wire.ElicitResult, error) { return s.cfg.onElicit(ctx, req) })
	if err != nil || res == nil {
		res = &wire.ElicitResult{Action: wire.ElicitDecline}
	}
	return res, nil
}

// userDialog shows a dialog. Without a callback it sends no response: another host of
// the same agent may have one.
func (s *session) userDialog(ctx context.Context, req *wire.RequestUserDialog) (any, error) {
	if s.cfg.onUserDialog == nil {
		return nil, ErrNoAnswer
	}
	res, err := guard(s, "OnUserDialog", func() (*wire.RequestUserDialogResponse, error) { return s.cfg.onUserDialog(ctx, req) })
	if err != nil {
		return &wire.RequestUserDialogResponse{Behavior: "cancelled"}, nil
	}
	if res == nil {
		return nil, ErrNoAnswer
	}
	return res, nil
}
