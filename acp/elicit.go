package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/wire"
)

// elicit sends the client a question of an MCP server.
func (f *follower) elicit(ctx context.Context, q *hub.Ask) {
	var req wire.Elicitation
	json.Unmarshal(q.Request, &req)
	params := &v1.CreateElicitationRequest{SessionID: f.id, Message: req.Message, Mode: firstOf(req.Mode, "form")}
	can := f.client.forms
	if params.Mode == "url" {
		can = f.client.urls
		params.URL, params.ElicitationID = req.URL, firstOf(req.ElicitationID, q.ID)
	} else if params.RequestedSchema = new(v1.ElicitationSchema); json.Unmarshal(req.RequestedSchema, params.RequestedSchema) != nil {
		can = false
	}
	if !can {
		f.answerLater(q, &wire.ElicitResult{Action: "decline"})
		return
	}
	if len(req.PropertyOrder) == 0 {
		req.PropertyOrder = rawjson.Names(rawjson.Get(req.RequestedSchema, "properties"))
	}
	f.form(ctx, q, params, req.PropertyOrder, func(resp *v1.CreateElicitationResponse) any {
		r := &wire.ElicitResult{Action: wire.ElicitAction(resp.Action)}
		if resp.Action == "accept" && params.Mode == "form" {
			r.Content = mustJSON(resp.Content)
		}
		return r
	}, &wire.ElicitResult{Action: "cancel"})
}

// form sends an elicitation whose fields have an order. failed is the answer if the client
// cannot show it.
func (f *follower) form(ctx context.Context, q *hub.Ask, params *v1.CreateElicitationRequest, order []string, answer func(*v1.CreateElicitationResponse) any, failed any) {
	call, err := f.srv.conn.send("elicitation/create", orderFields(mustJSON(params), order))
	if err != nil {
		return
	}
	f.asks[q.ID].call = call
	f.srv.conn.work.Go(func() {
		var resp v1.CreateElicitationResponse
		err := call.wait(ctx, &resp)
		if ctx.Err() != nil || f.ctx.Err() != nil {
			return
		}
		if err != nil {
			f.answer(q, failed)
			return
		}
		f.answer(q, answer(&resp))
	})
}

// orderFields puts the fields of a form in order: a map of Go has none.
func orderFields(params json.RawMessage, order []string) json.RawMessage {
	schema := rawjson.Get(params, "requestedSchema")
	fields := rawjson.Get(schema, "properties")
	if len(fields) == 0 {
		return params
	}
	schema = rawjson.Set(schema, "properties", string(rawjson.Order(fields, order)))
	return rawjson.Set(params, "requestedSchema", string(schema))
}

// A question is a question of the model to the user.
type question struct {
	Question    string `json:"question"`
	Header      string `json:"header"`
	MultiSelect bool   `json:"multiSelect"`
	Options     []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

// askChoice sends the client the model's questions: with a form if the client can show
// one, or else as a permission request, if that can express them.
func (f *follower) askChoice(ctx context.Context, q *hub.Ask) {
	var req wire.CanUseTool
	var in struct {
		Questions []question `json:"questions"`
	}
	if json.Unmarshal(q.Request, &req) != nil || json.Unmarshal(req.Input, &in) != nil || len(in.Questions) == 0 {
		f.answerLater(q, deny("The questions cannot be shown."))
		return
	}
	switch first := in.Questions[0]; {
	case f.client.forms:
		f.choiceForm(ctx, q, &req, in.Questions)
	case len(in.Questions) == 1 && !first.MultiSelect:
		var choices []choice
		for i, o := range first.Options {
			choices = append(choices, option(fmt.Sprintf("answer-%d", i+1), o.Label, v1.PermissionOptionKindAllowOnce, answers(&req, map[string]string{first.Question: o.Label})))
		}
		choices = append(choices, option("reject", "No answer", v1.PermissionOptionKindRejectOnce, deny(refused)))
		subject := f.subject(&req)
		subject.Title = first.Question
		f.request(ctx, q, subject, choices)
	default:
		f.answerLater(q, deny("The editor cannot show several questions at once. Ask one question with a single choice, or ask in the text."))
	}
}

// answers returns the result that allows the call of AskUserQuestion with the user's
// choices.
func answers(req *wire.CanUseTool, chosen map[string]string) *wire.PermissionResult {
	var input map[string]json.RawMessage
	json.Unmarshal(req.Input, &input)
	if input == nil {
		input = map[string]json.RawMessage{}
	}
	input["answers"] = mustJSON(chosen)
	return &wire.PermissionResult{Behavior: wire.BehaviorAllow, UpdatedInput: mustJSON(input)}
}

// choiceForm asks questions with a form.
func (f *follower) choiceForm(ctx context.Context, q *hub.Ask, req *wire.CanUseTool, questions []question) {
	schema := &v1.ElicitationSchema{Type: v1.ElicitationSchemaTypeObject, Properties: map[string]v1.ElicitationPropertySchema{}}
	var order []string
	name := func(i int) string { return fmt.Sprintf("question_%d", i) }
	for i, x := range questions {
		var options []v1.EnumOption
		for _, o := range x.Options {
			options = append(options, v1.EnumOption{Const: o.Label, Title: o.Label, Description: o.Description})
		}
		p := v1.ElicitationPropertySchema{}
		if x.MultiSelect {
			p.Array = &v1.MultiSelectPropertySchema{Title: x.Header, Description: x.Question, Items: v1.MultiSelectItems{TitledMultiSelectItems: &v1.TitledMultiSelectItems{AnyOf: options}}}
		} else {
			p.String = &v1.StringPropertySchema{Title: x.Header, Description: x.Question, OneOf: options}
		}
		order = append(order, name(i), name(i)+"_custom")
		schema.Properties[name(i)] = p
		schema.Properties[name(i)+"_custom"] = v1.ElicitationPropertySchema{String: &v1.StringPropertySchema{Title: "Other", Description: "An answer of your own, in place of the options"}}
	}
	message := questions[0].Question
	if len(questions) > 1 {
		message = fmt.Sprintf("%d questions", len(questions))
	}
	params := &v1.CreateElicitationRequest{SessionID: f.id, Mode: "form", Message: message, RequestedSchema: schema}
	if c := f.t.calls[req.ToolUseID]; c != nil {
		params.ToolCallID = c.id
	}
	f.form(ctx, q, params, order, func(resp *v1.CreateElicitationResponse) any {
		if resp.Action != "accept" {
			return deny(refused)
		}
		chosen := map[string]string{}
		for i, x := range questions {
			var one, own string
			var many []string
			if json.Unmarshal(resp.Content[name(i)+"_custom"], &own) == nil && own != "" {
				chosen[x.Question] = own
				continue
			}
			if json.Unmarshal(resp.Content[name(i)], &one) == nil {
				chosen[x.Question] = one
			} else if json.Unmarshal(resp.Content[name(i)], &many) == nil {
				chosen[x.Question] = strings.Join(many, ", ")
			}
		}
		return answers(req, chosen)
	}, deny("The editor could not show the questions."))
}
