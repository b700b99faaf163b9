package frontmatter

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Headers need little of YAML: maps, lists and scalars, in blocks or in one line. A
// full library is as large as the shell parser; a test compares this parser with one.
// Other syntax, such as anchors and tags, is an error, and the header is then read line
// by line.

var errYAML = errors.New("the head is not the YAML that is read here")

// A yamlParser parses lines, each with its indentation.
type yamlParser struct {
	lines []yamlLine
	at    int
	depth int
}

type yamlLine struct {
	indent int
	text   string // without indentation
}

const maxYAMLDepth = 32

// readYAML parses a map.
func readYAML(head string) (map[string]any, error) {
	p := &yamlParser{}
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, " \t\n")
		bare := strings.TrimLeft(line, " ")
		if strings.HasPrefix(bare, "\t") {
			return nil, errYAML
		}
		p.lines = append(p.lines, yamlLine{len(line) - len(bare), bare})
	}
	p.skip()
	if p.at == len(p.lines) {
		return nil, nil
	}
	v, err := p.block(0)
	if err != nil {
		return nil, err
	}
	p.skip()
	fields, ok := v.(map[string]any)
	if !ok || p.at < len(p.lines) {
		return nil, errYAML
	}
	return fields, nil
}

// skip skips empty lines and comments.
func (p *yamlParser) skip() {
	for p.at < len(p.lines) && (p.lines[p.at].text == "" || p.lines[p.at].text[0] == '#') {
		p.at++
	}
}

// block parses the map or list at the current line, which is indented by at least min.
func (p *yamlParser) block(min int) (any, error) {
	if p.depth++; p.depth > maxYAMLDepth {
		return nil, errYAML
	}
	defer func() { p.depth-- }()
	first := p.lines[p.at]
	if first.indent < min {
		return nil, errYAML
	}
	if isItem(first.text) {
		return p.list(first.indent)
	}
	return p.mapping(first.indent)
}

func isItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

func (p *yamlParser) list(indent int) (any, error) {
	list := []any{}
	for p.skip(); p.at < len(p.lines) && p.lines[p.at].indent == indent && isItem(p.lines[p.at].text); p.skip() {
		rest := strings.TrimLeft(p.lines[p.at].text[1:], " ")
		if _, _, isKey := cutKey(rest); isKey {
			// A map starts after the dash.
			p.lines[p.at] = yamlLine{indent + len(p.lines[p.at].text) - len(rest), rest}
			v, err := p.mapping(p.lines[p.at].indent)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			continue
		}
		v, err := p.value(rest, indent)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if p.at < len(p.lines) && p.lines[p.at].indent > indent {
		return nil, errYAML
	}
	return list, nil
}

func (p *yamlParser) mapping(indent int) (any, error) {
	fields := map[string]any{}
	for p.skip(); p.at < len(p.lines) && p.lines[p.at].indent == indent; p.skip() {
		name, rest, ok := cutKey(p.lines[p.at].text)
		if !ok {
			return nil, errYAML
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s stands there twice", name)
		}
		v, err := p.value(rest, indent)
		if err != nil {
			return nil, err
		}
		fields[name] = v
	}
	if p.at < len(p.lines) && p.lines[p.at].indent > indent {
		return nil, errYAML
	}
	return fields, nil
}

// cutKey splits "name: rest".
func cutKey(text string) (name, rest string, ok bool) {
	if text == "" || strings.ContainsRune("[{&*!|>%@`?#,]}", rune(text[0])) {
		return "", "", false
	}
	if text[0] == '"' || text[0] == '\'' {
		s, behind, err := quoted(text)
		if err != nil || !strings.HasPrefix(behind, ":") || len(behind) > 1 && behind[1] != ' ' {
			return "", "", false
		}
		return s, strings.TrimLeft(behind[1:], " "), true
	}
	if strings.HasSuffix(text, ":") && !strings.Contains(text, ": ") {
		return text[:len(text)-1], "", true
	}
	name, rest, ok = strings.Cut(text, ": ")
	if !ok || strings.Contains(name, " #") {
		return "", "", false
	}
	return strings.TrimRight(name, " "), strings.TrimLeft(rest, " "), true
}

// value parses the value after a name or a dash of the current line, with the lines
// below that belong to it.
func (p *yamlParser) value(rest string, indent int) (any, error) {
	p.at++
	if rest == "" || rest[0] == '#' {
		p.skip()
		if p.at == len(p.lines) {
			return nil, nil
		}
		next := p.lines[p.at]
		// A list may be indented like its name.
		if next.indent > indent || next.indent == indent && isItem(next.text) && !isItem(p.lines[p.at-1].text) {
			return p.block(indent)
		}
		return nil, nil
	}
	switch rest[0] {
	case '|', '>':
		return p.text(rest, indent)
	case '&', '*', '!', '%', '@', '`', ']', '}', ',':
		return nil, errYAML
	case '[', '{', '"', '\'':
		// They may continue on the next lines.
		whole := rest
		for {
			v, behind, err := flow(whole, 0)
			if err == nil {
				if behind = strings.TrimLeft(behind, " "); behind != "" && behind[0] != '#' {
					return nil, errYAML
				}
				return v, nil
			}
			if p.at == len(p.lines) {
				return nil, err
			}
			if l := p.lines[p.at]; l.text != "" && l.indent <= indent && l.text[0] != ']' && l.text[0] != '}' {
				return nil, err
			}
			whole += " " + p.lines[p.at].text
			p.at++
		}
	}
	text, comment := plain(rest)
	for !comment && p.at < len(p.lines) && p.lines[p.at].indent > indent && p.lines[p.at].text != "" {
		line := p.lines[p.at].text
		if _, _, isKey := cutKey(line); isKey || line[0] == '#' {
			return nil, errYAML
		}
		var more string
		more, comment = plain(line)
		text += " " + more
		p.at++
	}
	if strings.Contains(text, ": ") || strings.HasSuffix(text, ":") {
		return nil, errYAML // a map is not allowed here
	}
	return scalar(text), nil
}

// plain removes a trailing comment.
func plain(text string) (rest string, comment bool) {
	rest, _, comment = strings.Cut(text, " #")
	return strings.TrimRight(rest, " "), comment
}

// text parses a block of text after "|" or ">".
func (p *yamlParser) text(mark string, indent int) (any, error) {
	mark, _ = plain(mark)
	keep, ok := map[string]string{"": "clip", "-": "strip", "+": "keep"}[mark[1:]]
	if !ok {
		return nil, errYAML
	}
	var lines []string
	base := -1
	for ; p.at < len(p.lines); p.at++ {
		l := p.lines[p.at]
		if l.text == "" {
			lines = append(lines, "")
			continue
		}
		if base < 0 {
			base = l.indent
		}
		if l.indent <= indent || l.indent < base {
			break
		}
		lines = append(lines, strings.Repeat(" ", l.indent-base)+l.text)
	}
	empty := 0
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
		empty++
	}
	if len(lines) == 0 {
		return "", nil
	}
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			switch folds := mark[0] == '>' && l != "" && lines[i-1] != "" && l[0] != ' ' && lines[i-1][0] != ' '; {
			case folds:
				b.WriteByte(' ')
			case mark[0] == '>' && l != "" && lines[i-1] == "":
				// The empty lines have ended the line already.
			default:
				b.WriteByte('\n')
			}
		}
		b.WriteString(l)
	}
	switch keep {
	case "clip":
		b.WriteByte('\n')
	case "keep":
		b.WriteString(strings.Repeat("\n", empty+1))
	}
	return b.String(), nil
}

// flow parses a value in flow style, and returns the text after it.
func flow(s string, depth int) (v any, rest string, err error) {
	s = strings.TrimLeft(s, " ")
	if s == "" || depth > maxYAMLDepth {
		return nil, "", errYAML
	}
	switch s[0] {
	case '"', '\'':
		return quoted3(s)
	case '[':
		list := []any{}
		for s = strings.TrimLeft(s[1:], " "); ; {
			if strings.HasPrefix(s, "]") {
				return list, s[1:], nil
			}
			if v, s, err = flow(s, depth+1); err != nil {
				return nil, "", err
			}
			list = append(list, v)
			if s, err = behindItem(s, "]"); err != nil {
				return nil, "", err
			}
		}
	case '{':
		fields := map[string]any{}
		for s = strings.TrimLeft(s[1:], " "); ; {
			if strings.HasPrefix(s, "}") {
				return fields, s[1:], nil
			}
			var name any
			if s != "" && (s[0] == '"' || s[0] == '\'') {
				name, s, err = quoted3(s)
			} else if n := strings.IndexAny(s, ":,}"); n > 0 {
				name, s = strings.TrimSpace(s[:n]), s[n:]
			} else {
				err = errYAML
			}
			if err != nil || !strings.HasPrefix(s, ":") {
				return nil, "", errYAML
			}
			if v, s, err = flow(s[1:], depth+1); err != nil {
				return nil, "", err
			}
			fields[name.(string)] = v
			if s, err = behindItem(s, "}"); err != nil {
				return nil, "", err
			}
		}
	}
	n := strings.IndexAny(s, ",[]{}")
	if n < 0 {
		if depth > 0 {
			return nil, "", errYAML
		}
		n = len(s)
	}
	text := strings.TrimSpace(s[:n])
	if text == "" || strings.Contains(text, ": ") || strings.ContainsRune("&*!|>%@`#", rune(text[0])) {
		return nil, "", errYAML
	}
	return scalar(text), s[n:], nil
}

// behindItem skips the comma after an item, unless the end follows.
func behindItem(s, end string) (string, error) {
	s = strings.TrimLeft(s, " ")
	if rest, ok := strings.CutPrefix(s, ","); ok {
		return strings.TrimLeft(rest, " "), nil
	}
	if !strings.HasPrefix(s, end) {
		return "", errYAML
	}
	return s, nil
}

func quoted3(s string) (any, string, error) {
	text, rest, err := quoted(s)
	return text, rest, err
}

// quoted parses a quoted string and returns the text after it.
func quoted(s string) (text, rest string, err error) {
	var b strings.Builder
	mark := s[0]
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == mark && mark == '\'' && i+1 < len(s) && s[i+1] == '\'':
			b.WriteByte('\'')
			i++
		case c == mark:
			return b.String(), s[i+1:], nil
		case c == '\\' && mark == '"':
			// As in JSON, which has the same escapes except for a few.
			r, _, tail, err := strconv.UnquoteChar(s[i:], '"')
			if strings.HasPrefix(s[i:], `\/`) {
				r, tail, err = '/', s[i+2:], nil
			} else if strings.HasPrefix(s[i:], `\ `) {
				r, tail, err = ' ', s[i+2:], nil
			}
			if err != nil {
				return "", "", errYAML
			}
			b.WriteRune(r)
			i = len(s) - len(tail) - 1
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errYAML
}

// scalar returns the value of unquoted text.
func scalar(text string) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if c := text[0]; c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return text
	}
	if bare := strings.TrimLeft(text, "+-"); len(bare) > 1 && bare[0] == '0' && bare[1] != '.' {
		return text // such as 007, which is meant as digits
	}
	if n, err := strconv.ParseInt(text, 10, 0); err == nil {
		return int(n)
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(text, "xXpP_") {
		return f
	}
	return text
}
