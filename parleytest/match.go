package parleytest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Matcher is a condition for a request: for a turn to answer it, or for a
// script to select it. By default its text must occur in the matched part,
// unless [Matcher.Exact] or [Matcher.Regexp] is used.
type Matcher struct {
	kind string // as in a script file
	path string // of a field or header
	text string
	tool []string
	op   string // "" for contains, "=" for equal, "~" for a regular expression
	not  bool
	re   *regexp.Regexp
	fn   func(*Request) error
	err  error
}

// LastUser matches the text of the last user message that has any.
func LastUser(text string) Matcher { return Matcher{kind: "user", text: text} }

// FirstUser matches the text of the first user message, which starts the
// conversation and distinguishes a subagent from its parent.
func FirstUser(text string) Matcher { return Matcher{kind: "first-user", text: text} }

// SystemPrompt matches the system prompt.
func SystemPrompt(text string) Matcher { return Matcher{kind: "system", text: text} }

// ToolResult matches the tool results in the request; one of them must match.
func ToolResult(text string) Matcher { return Matcher{kind: "result", text: text} }

// ToolError matches tool results that are errors.
func ToolError(text string) Matcher { return Matcher{kind: "tool-error", text: text} }

// Tools requires all these tools to be in the request.
func Tools(names ...string) Matcher { return Matcher{kind: "tools", tool: names} }

// ModelName matches the requested model.
func ModelName(text string) Matcher { return Matcher{kind: "model", text: text} }

// Body matches the whole body of the request, as JSON.
func Body(text string) Matcher { return Matcher{kind: "body", text: text} }

// Field matches a member of the request; see [Request.Field].
func Field(path, text string) Matcher { return Matcher{kind: "field", path: path, text: text} }

// RequestHeader matches a header of the request.
func RequestHeader(name, text string) Matcher {
	return Matcher{kind: "header", path: strings.ToLower(name), text: text}
}

// Check calls a function, whose error is why the request does not match. It
// cannot be written in a script file.
func Check(name string, fn func(*Request) error) Matcher {
	return Matcher{kind: "check", text: name, fn: fn}
}

// Exact requires the whole text to be equal.
func (m Matcher) Exact() Matcher { m.op = "="; return m }

// Regexp interprets the text as a regular expression.
func (m Matcher) Regexp() Matcher {
	m.op = "~"
	re, err := regexp.Compile(m.text)
	if err != nil {
		m.err = fmt.Errorf("expect %s: %w", m.kind, err)
	}
	m.re = re
	return m
}

// Not negates the matcher.
func (m Matcher) Not() Matcher { m.not = !m.not; return m }

// String returns the matcher as written in a script file.
func (m Matcher) String() string { return strings.TrimPrefix(formatMatcher(m), "expect ") }

// matches reports whether the request matches m, and the actual values.
func (m Matcher) matches(r *Request) (ok bool, got []string) {
	switch m.kind {
	case "check":
		if err := m.fn(r); err != nil {
			return m.not, []string{err.Error()}
		}
		return !m.not, nil
	case "tools":
		got = r.Tools()
		all := true
		for _, name := range m.tool {
			has := slices.Contains(got, name)
			if m.not && has { // none of them
				return false, got
			}
			all = all && has
		}
		return all || m.not, got
	case "user":
		got = []string{r.LastUser()}
	case "first-user":
		got = []string{r.FirstUser()}
	case "system":
		got = []string{r.SystemPrompt()}
	case "model":
		got = []string{r.ModelName()}
	case "result", "tool-error":
		for _, res := range r.ToolResults() {
			if res.IsError || m.kind == "result" {
				got = append(got, res.Text)
			}
		}
	case "field":
		if v, ok := r.Field(m.path); ok {
			got = []string{v}
		}
	case "body":
		got = []string{string(r.Body)}
	case "header":
		got = r.Header.Values(m.path)
	}
	return slices.ContainsFunc(got, m.accepts) != m.not, got
}

func (m Matcher) accepts(s string) bool {
	switch m.op {
	case "=":
		return s == m.text
	case "~":
		return m.re != nil && m.re.MatchString(s)
	}
	return strings.Contains(s, m.text)
}

// explain describes what m expected and the actual values, as a diff.
func (m Matcher) explain(got []string) string {
	var b strings.Builder
	if m.op == "=" && !m.not && len(got) == 1 && strings.Contains(m.text+got[0], "\n") {
		fmt.Fprintf(&b, "  expect %s =\n", m.kind)
		b.WriteString(lineDiff(m.text, got[0], 4))
		return b.String()
	}
	fmt.Fprintf(&b, "- expect %s\n", m)
	if len(got) == 0 {
		fmt.Fprintf(&b, "+ got nothing\n")
	}
	if m.kind == "tools" {
		fmt.Fprintf(&b, "+ got %s\n", strings.Join(got, " "))
		return b.String()
	}
	for _, g := range got {
		for i, line := range strings.Split(shorten(g, 2000), "\n") {
			if i == 0 {
				fmt.Fprintf(&b, "+ got %s\n", line)
			} else {
				fmt.Fprintf(&b, "+     %s\n", line)
			}
		}
	}
	return b.String()
}

// shorten keeps the beginning and the end of a long text.
func shorten(s string, max int) string {
	if len(s) <= max {
		return s
	}
	head, tail := s[:max/2], s[len(s)-max/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf(" … %d bytes … ", len(s)-max) + strings.ToValidUTF8(tail, "")
}
