package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A pattern is a frame of a script: matched as a subset, or sent.
type pattern struct {
	raw   []byte          // compact JSON, variables in place
	value any             // decoded, for matching
	vars  []string        // variables that it contains
	binds map[string]bool // variables that it binds when it matches
	res   map[string]*regexp.Regexp
}

// decode decodes one JSON value, keeping number literals.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// check compiles the regular expressions of a pattern and rejects invalid ones.
func (p *pattern) check(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if err := p.check(e); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := p.check(e); err != nil {
				return err
			}
		}
	case string:
		if re, ok := strings.CutPrefix(v, "$~"); ok {
			c, err := regexp.Compile(re)
			if err != nil {
				return fmt.Errorf("bad regular expression in %q: %w", v, err)
			}
			if p.res == nil {
				p.res = make(map[string]*regexp.Regexp)
			}
			p.res[v] = c
		}
	}
	return nil
}

// match returns the differences between got and the pattern. Without differences
// it is a match, and bound holds the values of the variables that it binds.
func (p *pattern) match(got any, vars map[string]any) (bound map[string]any, diffs []string) {
	m := &matcher{p: p, vars: vars, bound: make(map[string]any)}
	m.match("", p.value, got)
	return m.bound, m.diffs
}

type matcher struct {
	p     *pattern
	vars  map[string]any
	bound map[string]any
	diffs []string
}

// rest as the last element of an array pattern stands for any further elements.
const rest = "..."

func (m *matcher) differ(path, format string, args ...any) {
	if path == "" {
		path = "."
	}
	m.diffs = append(m.diffs, path+": "+fmt.Sprintf(format, args...))
}

func (m *matcher) match(path string, want, got any) {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			m.differ(path, "want an object, got %s", short(got))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			sub := path + "." + k
			v, has := g[k]
			switch {
			case want[k] == "$absent":
				if has {
					m.differ(sub, "want it absent, got %s", short(v))
				}
			case !has:
				m.differ(sub, "want %s, got nothing", short(want[k]))
			default:
				m.match(sub, want[k], v)
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			m.differ(path, "want an array, got %s", short(got))
			return
		}
		if n := len(want); n > 0 && want[n-1] == rest {
			want = want[:n-1]
			if len(g) > len(want) {
				g = g[:len(want)]
			}
		}
		if len(g) != len(want) {
			m.differ(path, "want %d elements, got %d", len(want), len(g))
			return
		}
		for i := range want {
			m.match(path+"["+strconv.Itoa(i)+"]", want[i], g[i])
		}
	case string:
		m.str(path, want, got)
	case json.Number:
		if g, ok := got.(json.Number); !ok || !sameNumber(string(want), string(g)) {
			m.differ(path, "want %s, got %s", want, short(got))
		}
	default: // nil, bool
		if want != got {
			m.differ(path, "want %s, got %s", short(want), short(got))
		}
	}
}

func (m *matcher) str(path, want string, got any) {
	if re := m.p.res[want]; re != nil {
		if s, ok := got.(string); !ok || !re.MatchString(s) {
			m.differ(path, "want a match of %s, got %s", re, short(got))
		}
		return
	}
	name, isVar := varName(want)
	switch {
	case isVar && name == "_":
		return
	case isVar:
		v, ok := m.bound[name]
		if !ok && !m.p.binds[name] {
			v, ok = m.vars[name]
		}
		if !ok {
			m.bound[name] = got
			return
		}
		if !equal(v, got) {
			m.differ(path, "want %s (%s), got %s", want, short(v), short(got))
		}
		return
	}
	lit, err := expandString(want, func(name string) (any, bool) { v, ok := m.vars[name]; return v, ok })
	if err != nil {
		m.differ(path, "%v", err)
		return
	}
	if lit != got {
		m.differ(path, "want %s, got %s", short(lit), short(got))
	}
}

// equal compares two decoded values.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		bm, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, bm, equal)
	case []any:
		bs, ok := b.([]any)
		return ok && slices.EqualFunc(a, bs, equal)
	case json.Number:
		bn, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(bn))
	}
	return a == b
}

// sameNumber compares number literals by value.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	// Huge exponents would produce exact values of gigabytes.
	const most = 64
	if len(a) > most || len(b) > most || exponent(a) > most || exponent(b) > most {
		return false
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok1 && ok2 && x.Cmp(y) == 0
}

func exponent(s string) int {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return 0
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return 1 << 30
	}
	return max(n, -n)
}

// short renders a value for an error message.
func short(v any) string {
	b, err := marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(b), 120)
}

// clip shortens s to about n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + fmt.Sprintf("… (%d bytes)", len(s))
}

// marshal encodes without escaping HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func isName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// varName reports whether a whole string is a variable.
func varName(s string) (string, bool) {
	if name, ok := strings.CutPrefix(s, "$"); ok && isName(name) {
		return name, true
	}
	return "", false
}

// expandString replaces ${name} in a string and $$ by $.
func expandString(s string, lookup func(string) (any, bool)) (string, error) {
	if !strings.Contains(s, "$") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		if s[i+1] == '$' {
			b.WriteByte('$')
			i++
			continue
		}
		if s[i+1] == '{' {
			if end := strings.IndexByte(s[i:], '}'); end > 0 && isName(s[i+2:i+end]) {
				name := s[i+2 : i+end]
				v, ok := lookup(name)
				if !ok {
					return "", fmt.Errorf("$%s is not bound", name)
				}
				if str, ok := v.(string); ok {
					b.WriteString(str)
				} else {
					b.WriteString(short(v))
				}
				i += end
				continue
			}
		}
		b.WriteByte('$')
	}
	return b.String(), nil
}

// eachString calls f with every string literal of compact JSON, including
// quotes, and with the text between them.
func eachString(raw []byte, f func(part []byte, isString bool)) {
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '"')
		if i < 0 {
			f(raw, false)
			return
		}
		if i > 0 {
			f(raw[:i], false)
			raw = raw[i:]
		}
		end := 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(raw))
		f(raw[:end], true)
		raw = raw[end:]
	}
}

// frameVars lists the variables in a frame, in order.
func frameVars(raw []byte) []string {
	var vars []string
	add := func(name string) (any, bool) {
		if !slices.Contains(vars, name) {
			vars = append(vars, name)
		}
		return "", true
	}
	eachString(raw, func(part []byte, isString bool) {
		var s string
		if !isString || bytes.IndexByte(part, '$') < 0 || json.Unmarshal(part, &s) != nil || strings.HasPrefix(s, "$~") {
			return
		}
		if name, ok := varName(s); ok {
			add(name)
			return
		}
		_, _ = expandString(s, add) // add knows every name
	})
	return vars
}

// render returns the frame to send, with its variables replaced.
func (p *pattern) render(lookup func(string) (any, bool)) ([]byte, error) {
	if bytes.IndexByte(p.raw, '$') < 0 {
		return p.raw, nil
	}
	out := make([]byte, 0, len(p.raw)+64)
	var failed error
	eachString(p.raw, func(part []byte, isString bool) {
		var s string
		if !isString || bytes.IndexByte(part, '$') < 0 || json.Unmarshal(part, &s) != nil {
			out = append(out, part...)
			return
		}
		var v any
		if name, ok := varName(s); ok {
			if v, ok = lookup(name); !ok && failed == nil {
				failed = fmt.Errorf("$%s is not bound", name)
			}
		} else {
			lit, err := expandString(s, lookup)
			if err != nil && failed == nil {
				failed = err
			}
			v = lit
		}
		b, err := marshal(v)
		if err != nil && failed == nil {
			failed = err
		}
		out = append(out, b...)
	})
	return out, failed
}
