package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

const maxPrompts = 200 // of one server

// promptWait is how long listing prompts may take; a server without prompts is fine. It
// is shorter in tests.
var promptWait = 2 * time.Second

// A Prompt is a prompt that a server provides for the user.
type Prompt struct {
	server      *server
	name        string // the server's name for it
	full        string
	description string
	arguments   []promptArgument
}

type promptArgument struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
}

// Name returns the name of the prompt for users, such as "mcp__server__prompt".
func (p *Prompt) Name() string { return p.full }

// Description describes the prompt.
func (p *Prompt) Description() string {
	return strings.TrimSpace(p.description + " (MCP server " + p.server.name + ")")
}

// Hint lists the arguments, optional ones in brackets.
func (p *Prompt) Hint() string {
	var words []string
	for _, a := range p.arguments {
		if a.Required {
			words = append(words, "<"+a.Name+">")
		} else {
			words = append(words, "["+a.Name+"]")
		}
	}
	return strings.Join(words, " ")
}

// Prompts returns the prompts of the servers, in their order, and an edition that changes
// whenever they change.
func (m *Manager) Prompts() (prompts []*Prompt, edition uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.prompts), m.edition
}

// listPrompts lists the prompts of a server. A server that cannot list them has none.
func (s *server) listPrompts(ctx context.Context, conn *connection) []*Prompt {
	if r := conn.session.InitializeResult(); r == nil || r.Capabilities == nil || r.Capabilities.Prompts == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, promptWait, fmt.Errorf("it took longer than %v", promptWait))
	defer cancel()
	var prompts []*Prompt
	seen := map[string]bool{}
	err := s.pages(ctx, conn, rawPrompts, "prompts", "", func(one json.RawMessage) bool {
		var l struct {
			Name        string           `json:"name"`
			Description string           `json:"description"`
			Arguments   []promptArgument `json:"arguments"`
		}
		if json.Unmarshal(one, &l) != nil || l.Name == "" || len(l.Arguments) > 50 {
			return true
		}
		p := &Prompt{server: s, name: l.Name, full: ToolName(s.name, l.Name), description: clip(line(l.Description), 500), arguments: l.Arguments}
		for i := range p.arguments {
			p.arguments[i].Name = clip(line(p.arguments[i].Name), 100)
		}
		if !seen[p.full] {
			seen[p.full] = true
			prompts = append(prompts, p)
		}
		return len(prompts) < maxPrompts
	})
	if err != nil {
		s.m.log.Warn("the prompts of an MCP server cannot be listed", "server", s.name, "error", err)
	}
	return prompts
}

// line returns a text in one line.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// Expand requests the prompt from the server. The arguments are in the order of
// [Prompt.Hint], separated by spaces; one that contains spaces is quoted, except for the
// last one.
func (p *Prompt) Expand(ctx context.Context, args string) (wire.Content, error) {
	values := split(args, len(p.arguments))
	given := map[string]string{}
	for i, a := range p.arguments {
		switch {
		case i < len(values):
			given[a.Name] = values[i]
		case a.Required:
			return wire.Content{}, fmt.Errorf("The prompt needs the argument %s: /%s %s", a.Name, p.full, p.Hint())
		}
	}
	if len(p.arguments) == 0 && args != "" {
		return wire.Content{}, fmt.Errorf("The prompt takes no arguments: /%s", p.full)
	}
	conn, err := p.server.live(ctx)
	if err != nil {
		return wire.Content{}, err
	}
	params := &callParams{Name: p.name}
	params.Meta = mcp.Meta{}
	if params.Arguments, err = json.Marshal(given); err != nil {
		return wire.Content{}, err
	}
	answer, err := conn.ask(ctx, p.server, 0, func(ctx context.Context) (*rawResult, error) {
		return mcp.CallCustomMethod[*callParams, *rawResult](ctx, conn.session, rawPrompt, params)
	})
	if err != nil {
		return wire.Content{}, err
	}
	var r struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		return wire.Content{}, fmt.Errorf("The answer of the MCP server %s cannot be read: %v", p.server.name, err)
	}
	// A text that is too long is not written to a file, because nobody has approved it
	// yet.
	spill := &spill{server: p.server.name, name: p.full, max: p.server.m.opts.MaxResult, call: &tool.Call{}}
	var blocks []wire.Block
	size := 0
	for _, m := range r.Messages {
		said, _ := spill.block(m.Content)
		for _, b := range said {
			if t, ok := b.(*wire.TextBlock); ok {
				size += len(t.Text)
				if m.Role == "assistant" {
					t.Text = "You said: " + t.Text
				}
			}
		}
		blocks = append(blocks, said...)
	}
	if size > 4*spill.max {
		return wire.Content{}, fmt.Errorf("The prompt of the MCP server %s is too long", p.server.name)
	}
	if len(blocks) == 0 {
		return wire.Content{}, errors.New("The prompt is empty")
	}
	return wire.Blocks(blocks...), nil
}

// split splits arguments, n at most: the last one is the rest.
func split(text string, n int) []string {
	var values []string
	for text = strings.TrimSpace(text); text != "" && len(values) < n; text = strings.TrimSpace(text) {
		if q := text[0]; q == '"' || q == '\'' {
			if end := strings.IndexByte(text[1:], q); end >= 0 {
				values = append(values, text[1:1+end])
				text = text[2+end:]
				continue
			}
		}
		if len(values) == n-1 {
			return append(values, text)
		}
		word, rest, _ := strings.Cut(text, " ")
		values = append(values, word)
		text = rest
	}
	return values
}
