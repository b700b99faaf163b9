// Package frontmatter parses the header of Markdown files: YAML between two lines of three
// dashes, before the text. Agents, commands, skills and output styles are such files.
//
// People write headers that are not valid YAML, such as a description with a colon in it.
// Those are read line by line, as a name and the rest of the line, to keep as much as
// possible. The package parses its input and does not access files.
package frontmatter

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// MaxSize is the maximum size of a file in bytes.
const MaxSize = 1 << 20

// A Document is a parsed file.
type Document struct {
	Fields map[string]any // of the header: strings, numbers, booleans, lists and maps of them; never nil
	Body   string         // the text after the header, without surrounding space
	Loose  bool           // the header is not valid YAML and was read line by line
	// Problem describes a part of the header that could not be parsed at all; it is empty
	// if there is none.
	Problem string
}

// Parse parses a file. A file without a header consists of the body only. It returns an
// error if the file is too large.
func Parse(text []byte) (*Document, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the file has %d bytes, and at most %d are read", len(text), MaxSize)
	}
	head, body, ok := split(string(text))
	d := &Document{Fields: map[string]any{}, Body: strings.TrimSpace(body)}
	if !ok {
		if first, _, _ := strings.Cut(d.Body, "\n"); strings.TrimRight(first, " \t\r") == "---" {
			d.Problem = "line 1: the header that starts with --- has no closing line ---"
		}
		return d, nil
	}
	fields, err := parseYAML(head)
	if err != nil {
		d.Loose = true
		fields, d.Problem = parseLines(head)
	}
	if fields != nil {
		d.Fields = fields
	}
	return d, nil
}

// split splits a file at its dashes.
func split(text string) (head, body string, ok bool) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return "", text, false
	}
	for at := 0; at < len(rest); {
		line, _, _ := strings.Cut(rest[at:], "\n")
		end := min(at+len(line)+1, len(rest))
		if strings.TrimRight(line, " \t") == "---" {
			return rest[:at], rest[end:], true
		}
		at = end
	}
	return "", text, false
}

func parseYAML(head string) (map[string]any, error) {
	fields, err := readYAML(head)
	if err != nil {
		return nil, err
	}
	if _, err := json.Marshal(fields); err != nil { // such as invalid UTF-8
		return nil, err
	}
	return fields, nil
}

// parseLines reads names and the rest of their lines. Indented lines continue the previous
// one; lines that start with a dash form a list. The problem is the first line that is
// neither, or whose value ends too early.
func parseLines(head string) (fields map[string]any, problem string) {
	fields = map[string]any{}
	report := func(n int, reason string) {
		if problem == "" {
			problem = fmt.Sprintf("line %d: the header is not valid YAML: %s", n+1, reason)
		}
	}
	last, n := "", 0
	for line := range strings.Lines(head) {
		n++
		line = strings.TrimRight(line, " \t\n")
		bare := strings.TrimSpace(line)
		if bare == "" || strings.HasPrefix(bare, "#") {
			continue
		}
		if item, ok := strings.CutPrefix(bare, "- "); ok && last != "" {
			switch have := fields[last].(type) {
			case []any:
				fields[last] = append(have, unquote(strings.TrimSpace(item)))
				continue
			case string:
				if have == "" {
					fields[last] = []any{unquote(strings.TrimSpace(item))}
					continue
				}
			}
		}
		name, value, ok := strings.Cut(line, ":")
		if line != bare || !ok || strings.ContainsAny(strings.TrimSpace(name), " \t<>\"'") {
			if have, is := fields[last].(string); is && last != "" {
				fields[last] = strings.TrimSpace(have + "\n" + bare)
			}
			if last == "" {
				report(n, "it must be \"name: value\"")
			}
			continue
		}
		last = strings.TrimSpace(name)
		value = strings.TrimSpace(value)
		switch value {
		case "|", "|-", ">", ">-":
			value = ""
		}
		fields[last] = unquote(value)
		if value != "" && (value[0] == '"' || value[0] == '\'') && strings.Count(value, value[:1]) == 1 {
			report(n, fmt.Sprintf("the value of %s starts with %c and does not end; close it, or put the value in quotes of the other kind", last, value[0]))
		}
		if value != "" && (value[0] == '[' || value[0] == '{') {
			if one, err := parseYAML("v: " + value); err == nil && one["v"] != nil {
				fields[last] = one["v"]
			} else {
				report(n, fmt.Sprintf("the value of %s starts with %c and does not end; close it, or put the value in quotes", last, value[0]))
			}
		}
	}
	return fields, problem
}

func unquote(s string) string {
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		if s[0] == '"' {
			if text, err := strconv.Unquote(s); err == nil {
				return text
			}
		}
		return s[1 : n-1]
	}
	return s
}

// Has reports whether the header has a field that is not null.
func (d *Document) Has(name string) bool { return d.Fields[name] != nil }

// String returns a field as text. It is empty if the field is missing, a list or a map.
func (d *Document) String(name string) string {
	switch v := d.Fields[name].(type) {
	case string:
		return strings.TrimSpace(v)
	case nil, []any, map[string]any:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// List returns a field as a list: a YAML list, or text that is split at commas outside of
// parentheses. It is nil only if there is no such field.
func (d *Document) List(name string) []string {
	list := []string{}
	switch v := d.Fields[name].(type) {
	case nil:
		return nil
	case []any:
		for _, item := range v {
			if s := strings.TrimSpace(fmt.Sprint(item)); s != "" && item != nil {
				list = append(list, s)
			}
		}
	case map[string]any:
	default:
		text := strings.TrimSpace(fmt.Sprint(v))
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			text = text[1 : len(text)-1]
		}
		depth, from := 0, 0
		flush := func(to int) {
			if s := unquote(strings.TrimSpace(text[from:to])); s != "" {
				list = append(list, s)
			}
			from = to + 1
		}
		for i, r := range text {
			switch {
			case r == '(':
				depth++
			case r == ')':
				depth--
			case r == ',' && depth <= 0:
				flush(i)
			}
		}
		flush(len(text))
	}
	return list
}

// Bool returns the value of a boolean field, and whether there is one.
func (d *Document) Bool(name string) (value, ok bool) {
	switch v := d.Fields[name].(type) {
	case bool:
		return v, true
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "yes", "on":
			return true, true
		case "false", "no", "off":
			return false, true
		}
	}
	return false, false
}

// Int returns the value of an integer field, and whether there is one.
func (d *Document) Int(name string) (value int, ok bool) {
	n, err := strconv.Atoi(d.String(name))
	return n, err == nil
}

// JSON returns a field as JSON, or nil if there is none.
func (d *Document) JSON(name string) json.RawMessage {
	v := d.Fields[name]
	if v == nil {
		return nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return raw
}
