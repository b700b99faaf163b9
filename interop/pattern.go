package interop

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// A pattern is a part of a JSON value: an object matches if each member that the
// pattern names matches, where null is the same as absent. In strings,
//
//	"*"       is anything but null
//	"~TEXT"   is a string in which the regular expression TEXT is found
//
// An array matches element by element; one that begins with "..." matches if each of
// its other elements is found anywhere.

// mismatch describes how a value differs from the pattern; empty if it matches.
func mismatch(value, pattern any, path string) string {
	at := path
	if at == "" {
		at = "it"
	}
	switch p := pattern.(type) {
	case map[string]any:
		v, ok := value.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %s, not an object", at, brief(value))
		}
		for key, part := range p {
			if why := mismatch(v[key], part, strings.TrimPrefix(path+"."+key, ".")); why != "" {
				return why
			}
		}
		return ""
	case []any:
		v, ok := value.([]any)
		if !ok {
			return fmt.Sprintf("%s is %s, not an array", at, brief(value))
		}
		if len(p) > 0 && p[0] == "..." {
			for _, part := range p[1:] {
				found := false
				for _, e := range v {
					found = found || mismatch(e, part, "") == ""
				}
				if !found {
					return fmt.Sprintf("%s has no %s: %s", at, brief(part), brief(value))
				}
			}
			return ""
		}
		if len(v) != len(p) {
			return fmt.Sprintf("%s has %d elements, not %d: %s", at, len(v), len(p), brief(value))
		}
		for i, part := range p {
			if why := mismatch(v[i], part, fmt.Sprintf("%s[%d]", path, i)); why != "" {
				return why
			}
		}
		return ""
	case string:
		if p == "*" && value != nil {
			return ""
		}
		if re, ok := strings.CutPrefix(p, "~"); ok {
			s, isText := value.(string)
			if isText && regexp.MustCompile(re).MatchString(s) {
				return ""
			}
			return fmt.Sprintf("%s is %s, which is not %s", at, brief(value), p)
		}
	}
	if value != pattern {
		return fmt.Sprintf("%s is %s, not %s", at, brief(value), brief(pattern))
	}
	return ""
}

// brief formats a value as short JSON.
func brief(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(data) > 300 {
		return fmt.Sprintf("%s… (%d bytes)", data[:300], len(data))
	}
	return string(data)
}

// parseLines parses patterns, one JSON value per line. It ignores blank lines and those
// that start with #.
func parseLines(lines string) ([]any, error) {
	var all []any
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			return nil, fmt.Errorf("%w in %s", err, line)
		}
		all = append(all, v)
	}
	return all, nil
}

// kindOf returns the kind of a message: its type, and after a slash its subtype if it
// is a system message or the kind of a stream event.
func kindOf(m map[string]any) string {
	kind := text(m["type"])
	switch kind {
	case "system":
		return kind + "/" + text(m["subtype"])
	case "stream_event":
		e, _ := m["event"].(map[string]any)
		return kind + "/" + text(e["type"])
	}
	return kind
}

// asides are messages that may come at any time. They are checked only if a scenario
// names one of their kind.
var asides = map[string]bool{
	"command_lifecycle": true, "keep_alive": true, "rate_limit_event": true, "tool_progress": true, "prompt_suggestion": true,
	"system/background_tasks_changed": true, "system/commands_changed": true, "system/session_state_changed": true,
	"system/status": true, "system/thinking_tokens": true, "system/task_started": true, "system/task_progress": true,
	"system/task_updated": true, "system/task_notification": true,
}

// checkStream compares the messages with the patterns, in order. It ignores asides that
// no pattern names.
func checkStream(what string, came []map[string]any, patterns []any) []string {
	named := map[string]bool{}
	for _, p := range patterns {
		if m, ok := p.(map[string]any); ok {
			named[kindOf(m)] = true
		}
	}
	var problems []string
	next := 0
	for i, m := range came {
		kind := kindOf(m)
		if asides[kind] && !named[kind] {
			continue
		}
		if next == len(patterns) {
			problems = append(problems, fmt.Sprintf("%s %d was not expected: %s", what, i+1, brief(m)))
			continue
		}
		pattern := patterns[next]
		if m["class"] != nil {
			pattern = known(pattern, m)
		}
		if why := mismatch(m, pattern, ""); why != "" {
			return append(problems, fmt.Sprintf("%s %d is not what was expected: %s\n\texpected %s\n\tcame     %s", what, i+1, why, brief(patterns[next]), brief(m)))
		}
		next++
	}
	for _, p := range patterns[next:] {
		problems = append(problems, fmt.Sprintf("%s never came: %s", what, brief(p)))
	}
	return problems
}

// known returns the part of a pattern that applies to a message: the Python SDK has
// classes for messages and leaves out the members that they do not have.
func known(pattern any, m map[string]any) any {
	p, ok := pattern.(map[string]any)
	if !ok {
		return pattern
	}
	part := map[string]any{}
	for key, v := range p {
		inner, isObject := m[key].(map[string]any)
		switch {
		case isObject && key == "message":
			part[key] = known(v, inner)
		case m[key] != nil || v == nil:
			part[key] = v
		}
	}
	return part
}
