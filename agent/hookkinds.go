package agent

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool"
)

//go:embed hook_prompt.md
var hookPrompt string

// maxHookAnswer is the maximum size of a server's response to a hook, in bytes.
const maxHookAnswer = 1 << 20

// hookKinds returns the functions that run the hooks of settings that are not commands.
func (s *server) hookKinds() map[string]func(context.Context, *settings.Hook, []byte) (said, refused string, err error) {
	return map[string]func(context.Context, *settings.Hook, []byte) (string, string, error){
		"http": s.httpHook, "prompt": s.promptHook, "agent": s.agentHook, "mcp_tool": s.toolHook,
	}
}

// httpHook sends the input of a hook to a server. Headers contain environment variables only if
// the hook names them.
func (s *server) httpHook(ctx context.Context, h *settings.Hook, input []byte) (said, refused string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Spec.URL, bytes.NewReader(bytes.TrimSpace(input)))
	if err != nil {
		return "", "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.set.userAgent())
	for name, value := range h.Spec.Headers {
		req.Header.Set(name, os.Expand(value, func(variable string) string {
			if !slices.Contains(h.Spec.AllowedEnvVars, variable) {
				return ""
			}
			return s.set.vars[variable]
		}))
	}
	transport := newTransport(s.set.cfg.Environ)
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHookAnswer+1))
	switch {
	case err != nil:
		return "", "", err
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return "", "", fmt.Errorf("%s answered with status %d", h.Spec.URL, resp.StatusCode)
	case len(body) > maxHookAnswer:
		return "", "", fmt.Errorf("%s answered with more than %d bytes", h.Spec.URL, maxHookAnswer)
	}
	return string(body), "", nil
}

// promptHook lets a model judge the input of a hook.
func (s *server) promptHook(ctx context.Context, h *settings.Hook, input []byte) (said, refused string, err error) {
	reply, err := s.conv.AskModel(ctx, tool.Question{Model: h.Spec.Model, Small: true, System: strings.TrimSpace(hookPrompt), Prompt: checkOf(h, input), MaxTokens: 2048}, "hook")
	if err != nil {
		return "", "", err
	}
	return verdictOf(h, reply.Text)
}

// agentHook lets an agent with read-only tools check the input of a hook.
func (s *server) agentHook(ctx context.Context, h *settings.Hook, input []byte) (said, refused string, err error) {
	answer, err := engine.CheckByAgent(ctx, s.conv, h.Spec.Model, strings.TrimSpace(hookPrompt)+"\n\n"+agentHookNote, checkOf(h, input))
	if err != nil {
		return "", "", err
	}
	if _, refused, err = verdictOf(h, string(answer)); refused != "" {
		refused = "Agent hook condition was not met: " + refused
	}
	return "", refused, err
}

// agentHookNote is added to hookPrompt for an agent.
const agentHookNote = "Read files with your tools if the check needs it. Then answer by calling StructuredOutput."

// checkOf returns the prompt for a model: the check, with the input of the hook.
func checkOf(h *settings.Hook, input []byte) string {
	facts := strings.TrimSpace(string(input))
	text := strings.ReplaceAll(h.Spec.Prompt, "$ARGUMENTS", facts)
	if text == h.Spec.Prompt {
		text += "\n\n" + facts
	}
	return text
}

// verdictOf parses the answer of a model about a check.
func verdictOf(h *settings.Hook, answer string) (said, refused string, err error) {
	var verdict struct {
		OK     *bool  `json:"ok"`
		Reason string `json:"reason"`
	}
	answer = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(answer, "```json"), "```"))
	if err := json.Unmarshal([]byte(answer), &verdict); err != nil || verdict.OK == nil {
		return "", "", fmt.Errorf("the model answered %.100q in place of {\"ok\": …}", answer)
	}
	if *verdict.OK {
		return "", "", nil
	}
	if verdict.Reason == "" {
		verdict.Reason = "the check was not met: " + h.Spec.Prompt
	}
	return "", verdict.Reason, nil
}

// member matches the place of an input member in a string.
var member = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z0-9_.]+)\}`) })

// toolHook calls a tool of an MCP server.
func (s *server) toolHook(ctx context.Context, h *settings.Hook, input []byte) (said, refused string, err error) {
	args := json.RawMessage("{}")
	if len(h.Spec.Input) > 0 {
		var facts, given any
		if err := errors.Join(json.Unmarshal(input, &facts), json.Unmarshal(h.Spec.Input, &given)); err != nil {
			return "", "", err
		}
		if args, err = json.Marshal(fillMembers(given, facts)); err != nil {
			return "", "", err
		}
	}
	r, err := s.mcp.Call(ctx, mcp.ToolName(h.Spec.Server, h.Spec.Tool), "", args)
	if err != nil {
		return "", "", err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", "", err
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", "", err
	}
	var texts []string
	for _, c := range result.Content {
		texts = append(texts, c.Text)
	}
	if said = strings.Join(texts, "\n"); result.IsError {
		return "", "", errors.New(said)
	}
	return said, "", nil
}

// fillMembers replaces ${a.b} in the strings of a value by members of the facts.
func fillMembers(value, facts any) any {
	switch v := value.(type) {
	case map[string]any:
		for k := range v {
			v[k] = fillMembers(v[k], facts)
		}
	case []any:
		for i := range v {
			v[i] = fillMembers(v[i], facts)
		}
	case string:
		return member().ReplaceAllStringFunc(v, func(place string) string {
			at := facts
			for name := range strings.SplitSeq(place[2:len(place)-1], ".") {
				m, _ := at.(map[string]any)
				at = m[name]
			}
			if text, ok := at.(string); ok {
				return text
			}
			raw, _ := json.Marshal(at)
			return string(raw)
		})
	}
	return value
}
