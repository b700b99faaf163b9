package parleytest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Matcher is something a request must be for a turn to answer it or a script
// to take it. The text it looks for must occur in what it looks at, unless
// [Matcher.Exact] or [Matcher.Regexp] say otherwise.
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

// LastUser looks at the text of the last user message that has any.
func LastUser(text string) Matcher { return Matcher{kind: "user", text: text} }

// FirstUser looks at the text of the first user message: what began the
// conversation, which tells a subagent from its parent.
func FirstUser(text string) Matcher { return Matcher{kind: "first-user", text: text} }

// SystemPrompt looks at the system prompt.
func SystemPrompt(text string) Matcher { return Matcher{kind: "system", text: text} }

// ToolResult looks at the tool results that the request brings; one of them
// must match.
func ToolResult(text string) Matcher { return Matcher{kind: "result", text: text} }

// ToolError looks at those tool results that are errors.
func ToolError(text string) Matcher { return Matcher{kind: "tool-error", text: text} }

// Tools wants all these tools to be on offer.
func Tools(names ...string) Matcher { return Matcher{kind: "tools", tool: names} }

// ModelName looks at the model that is asked for.
func ModelName(text string) Matcher { return Matcher{kind: "model", text: text} }

// Field looks at a member of the request; see [Request.Field].
func Field(path, text string) Matcher { return Matcher{kind: "field", path: path, text: text} }

// RequestHeader looks at a header of the request.
func RequestHeader(name, text string) Matcher {
	return Matcher{kind: "header", path: strings.ToLower(name), text: text}
}

// Check asks a function, whose error is why the request does not match. It
// cannot be written in a script file.
func Check(name string, fn func(*Request) error) Matcher {
	return Matcher{kind: "check", text: name, fn: fn}
}

// Exact wants the whole to be the text.
func (m Matcher) Exact() Matcher { m.op = "="; return m }

// Regexp takes the text as a regular expression.
func (m Matcher) Regexp() Matcher {
	m.op = "~"
	re, err := regexp.Compile(m.text)
	if err != nil {
		m.err = fmt.Errorf("expect %s: %w", m.kind, err)
	}
	m.re = re
	return m
}

// Not wants the opposite.
func (m Matcher) Not() Matcher { m.not = !m.not; return m }

// String is the matcher as a script file has it.
func (m Matcher) String() string { return strings.TrimPrefix(formatMatcher(m), "expect ") }

// matches reports whether the request is what m wants, and what was there
// instead if not.
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

// explain says what m wanted and what was there, as a diff.
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

// shorten keeps the two ends of a long text.
func shorten(s string, max int) string {
	if len(s) <= max {
		return s
	}
	head, tail := s[:max/2], s[len(s)-max/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf(" … %d bytes … ", len(s)-max) + strings.ToValidUTF8(tail, "")
}
