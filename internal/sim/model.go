package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-go/parley/engine/model"
)

// A bill is the charge of the model's provider for one prompt, in tokens.
type bill struct{ open, input, output int64 }

// A simModel is the model of one life.
type simModel struct {
	w    *world
	life *life
}

var _ model.Model = (*simModel)(nil)

var marker = regexp.MustCompile(`(PROMPT|SUB)-([a-z0-9]+)`)

type block struct {
	Type      string         `json:"type"`
	Text      string         `json:"text,omitempty"`
	ID        string         `json:"id,omitempty"`
	Name      string         `json:"name,omitempty"`
	Input     jsontext.Value `json:"input,omitempty"`
	ToolUseID string         `json:"tool_use_id,omitempty"`
	Content   jsontext.Value `json:"content,omitempty"`
	IsError   bool           `json:"is_error,omitempty"`
}

type message struct {
	Role    string         `json:"role"`
	Content jsontext.Value `json:"content"`
}

func (m message) blocks() (all []block) {
	if len(m.Content) > 0 && m.Content[0] == '"' {
		var text string
		jsonv2.Unmarshal(m.Content, &text)
		return []block{{Type: "text", Text: text}}
	}
	jsonv2.Unmarshal(m.Content, &all)
	return all
}

// read parses a request: its prompt, and the number of earlier answers.
func (s *simModel) read(body []byte) (name string, sub bool, round int) {
	var req struct {
		Messages []message `json:"messages"`
	}
	if err := jsonv2.Unmarshal(body, &req); err != nil {
		s.w.violate("the request is not JSON: %v", err)
	}
	var open []string
	for i, m := range req.Messages {
		var uses []string
		for _, b := range m.blocks() {
			switch b.Type {
			case "text":
				if found := marker.FindStringSubmatch(b.Text); found != nil && m.Role == "user" {
					name, sub, round = found[2], found[1] == "SUB", 0
				}
			case "tool_use":
				uses = append(uses, b.ID)
			case "tool_result":
				at := -1
				for j, id := range open {
					if id == b.ToolUseID {
						at = j
					}
				}
				if at < 0 {
					s.w.violate("every tool result has its call: %s in message %d has none", b.ToolUseID, i)
				} else {
					open = append(open[:at], open[at+1:]...)
				}
				s.w.checkResult(b.ToolUseID, b)
			}
		}
		if m.Role == "assistant" {
			round++
		} else if len(open) > 0 {
			s.w.violate("every tool call has a result: %v has none in message %d of a request", open, i)
			open = nil
		}
		open = append(open, uses...)
	}
	if len(open) > 0 {
		s.w.violate("every tool call has a result: a request ends with %v", open)
	}
	return name, sub, round
}

// checkResult checks the result of a call that the model receives.
func (w *world) checkResult(id string, b block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.call(id)
	if c.told {
		return
	}
	c.told = true
	text := string(b.Content)
	did := contains(text, "is done")
	if did && c.name != "Look" && c.name != "mcp__host__add" && c.done != 1 {
		w.violateLocked("the model receives the truth: %s is reported as done, and its effect happened %d times", id, c.done)
	}
	if c.began > 0 && (contains(text, "did not run") || contains(text, "changed nothing") || contains(text, "did nothing")) {
		w.violateLocked("the model receives the truth: %s is reported as not run, and it began: %s", id, text)
	}
}

// Stream implements [model.Model].
func (s *simModel) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := s.stream(ctx, req, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// billOf returns the bill for a prompt. The lock of the world is held.
func (w *world) billOf(prompt string) *bill {
	if w.bills[prompt] == nil {
		w.bills[prompt] = &bill{}
	}
	return w.bills[prompt]
}

func (s *simModel) stream(ctx context.Context, req model.Request, yield func(model.Event, error) bool) error {
	w := s.w
	if !w.gate(s.life) {
		return errKilled
	}
	name, sub, round := s.read(req.Body)
	w.mu.Lock()
	f := w.faultLocked("model.refuse", "model.deny", "model.cut", "model.stall", "model.malformed", "model.slow")
	n := w.count["model.refuse"]
	w.streaming[strconv.Itoa(n)] = true
	due := w.billOf(name)
	due.open++
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		due.open--
		delete(w.streaming, strconv.Itoa(n))
	}()
	began := w.logLocked("model", "request %d: %s round %d", n, name, round)
	w.mu.Unlock()
	r := source(w.plan.Seed, "model "+strconv.Itoa(n))
	what := source(w.plan.Seed, fmt.Sprintf("answer %s %d", name, round))
	if err := sleep(ctx, 1+time.Duration(r.Int64N(int64(50*time.Millisecond)))); err != nil {
		return err
	}
	stop, slow := 1<<30, time.Duration(0)
	if f != nil {
		switch f.Kind {
		case "model.refuse":
			status := []int{429, 500, 529, 503}[r.IntN(4)]
			return &model.Error{Status: status, Type: "api_error", Message: "try again"}
		case "model.deny":
			return &model.Error{Status: []int{400, 401, 403}[r.IntN(3)], Type: "invalid_request_error", Message: "no"}
		case "model.slow":
			slow = f.D
		default:
			stop = r.IntN(14)
		}
	}
	if req.OnResponse != nil {
		req.OnResponse(model.Response{Status: 200, RequestID: "req_" + strconv.Itoa(n)})
	}
	var blocks []block
	rounds := 1 + source(w.plan.Seed, "rounds "+name).IntN(3)
	if sub {
		rounds = 1
	}
	if what.IntN(2) == 0 {
		blocks = append(blocks, block{Type: "text", Text: "Thinking aloud."})
	}
	if name != "" && round < rounds {
		for i := range 1 + what.IntN(3) {
			id := fmt.Sprintf("toolu_%d_%d", n, i)
			tool, input := []string{"Look", "Do", "Make", "Do", "mcp__host__add", "Agent"}[what.IntN(6)], "{}"
			switch tool {
			case "Agent":
				if sub {
					tool = "Look"
					break
				}
				input = fmt.Sprintf(`{"description":"a part","prompt":"SUB-%sx%d","run_in_background":false}`, name, n*10+i)
			case "mcp__host__add":
				input = `{"A":1,"B":2}`
			}
			blocks = append(blocks, block{Type: "tool_use", ID: id, Name: tool, Input: jsontext.Value(input)})
			w.mu.Lock()
			c := w.call(id)
			c.name, c.prompt, c.asked, c.life = tool, name, began, s.life
			w.mu.Unlock()
		}
	} else {
		blocks = append(blocks, block{Type: "text", Text: "Done with " + name + "."})
	}
	input, output := int64(100+what.IntN(1000)), int64(10+what.IntN(300))
	counted := int64(1)
	events := []string{fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_%d","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":%d}}}`, n, input, counted)}
	reason := "end_turn"
	for i, b := range blocks {
		switch b.Type {
		case "text":
			events = append(events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}`, i),
				fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, i, quote(b.Text)))
		default:
			reason = "tool_use"
			events = append(events, fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%s,"name":%s,"input":{}}}`, i, quote(b.ID), quote(b.Name)),
				fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`, i, quote(string(b.Input))))
		}
		events = append(events, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
	}
	events = append(events, fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":%d}}`, reason, output), `{"type":"message_stop"}`)
	for i, data := range events {
		if i >= stop {
			w.log("model", "request %d ends at event %d of %d", n, i, len(events))
			switch f.Kind {
			case "model.cut":
				return io.ErrUnexpectedEOF
			case "model.malformed":
				if r.IntN(2) == 0 {
					return &model.EventError{Data: []byte("{"), Err: io.ErrUnexpectedEOF}
				}
				data = `{"type":"content_block_delta","index":77,"delta":{"type":"text_delta","text":"?"}}`
			case "model.stall":
				<-ctx.Done()
				return ctx.Err()
			}
		}
		if err := sleep(ctx, 1+slow/8+time.Duration(r.Int64N(int64(20*time.Millisecond)))); err != nil {
			return err
		}
		if !w.gate(s.life) {
			return errKilled
		}
		kind, _, _ := strings.Cut(data[len(`{"type":"`):], `"`)
		if kind == "message_stop" {
			w.mu.Lock()
			delete(w.streaming, strconv.Itoa(n))
			w.mu.Unlock()
		}
		w.mu.Lock()
		switch kind { // even if the agent has stopped
		case "message_start":
			due.input += input
			due.output += counted
		case "message_delta":
			due.output += output - counted
		}
		w.mu.Unlock()
		if !yield(model.Event{Type: kind, Data: []byte(data)}, nil) {
			return nil
		}
	}
	return nil
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
