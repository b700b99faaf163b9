package interop

import (
	"bufio"
	"bytes"
	_ "embed" // accepted.txt
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Difference is one difference between the output of two CLIs in the same scenario.
type Difference struct {
	Scenario string
	Kind     string // of the line, such as "assistant text" or "control_request can_use_tool"
	Path     string // in the line, with [] for any element of an array; empty for the line itself
	What     string // "missing", "extra", "order", "kind", "value", or "words" for texts with the same markers
	A, B     string // the value of each, as JSON; empty if absent
	Line     int    // in the output of the first CLI, from one; 0 for an extra one
}

// String formats the difference as one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s line %d: %s: %s %s: %s | %s", d.Scenario, d.Line, d.Kind, d.What, d.Path, d.A, d.B)
}

// Compare lists how the output of the second CLI differs from that of the first: in the
// order of lines; in the paths of their members and their JSON kinds, at any depth; and
// in values. Values that vary from run to run count as equal: ids, times, durations,
// paths and ports. Both outcomes are from [Record].
func Compare(a, b *Outcome) []Difference {
	var all []Difference
	for i := range max(len(a.Processes), len(b.Processes)) {
		all = append(all, compareLines(a.Scenario.Name, linesOf(a, i), linesOf(b, i))...)
	}
	return all
}

// A line is one line of a CLI, normalized for comparison.
type line struct {
	kind  string
	n     int // from one
	value any
}

// linesOf returns the output of a process in a comparable form.
func linesOf(o *Outcome, process int) []line {
	if process >= len(o.Processes) {
		return nil
	}
	p := o.Processes[process]
	asked := map[string]string{} // the subtypes of the host's requests
	for _, raw := range p.Host {
		var m struct {
			RequestID string `json:"request_id"`
			Request   struct{ Subtype string }
		}
		if json.Unmarshal(raw, &m) == nil && m.RequestID != "" {
			asked[m.RequestID] = m.Request.Subtype
		}
	}
	plain := o.plainer()
	var all []line
	for i, raw := range p.CLI {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			v = err.Error()
		}
		all = append(all, line{kind: lineKind(v, asked), n: i + 1, value: plain(v, "")})
	}
	for i, s := range p.Text {
		all = append(all, line{kind: "text", n: len(p.CLI) + i + 1, value: plain(s, "")})
	}
	return all
}

// lineKind returns the kind of a line, fine enough to compare lines of the same kind
// with each other.
func lineKind(v any, asked map[string]string) string {
	m, _ := v.(map[string]any)
	at := func(v any, path ...string) any {
		for _, name := range path {
			inner, _ := v.(map[string]any)
			v = inner[name]
		}
		return v
	}
	kind := kindOf(m)
	word := func(s string) {
		if s != "" {
			kind += " " + s
		}
	}
	switch text(m["type"]) {
	case "assistant", "user":
		content, _ := at(m, "message", "content").([]any)
		for _, b := range content {
			word(text(at(b, "type")))
			word(text(at(b, "name")))
			if at(b, "is_error") == true {
				word("error")
			}
		}
		if m["isReplay"] == true {
			word("replay")
		}
	case "control_request":
		word(text(at(m, "request", "subtype")))
		word(text(at(m, "request", "tool_name")))
		word(text(at(m, "request", "input", "hook_event_name")))
		word(text(at(m, "request", "message", "method")))
	case "control_response":
		word(asked[text(at(m, "response", "request_id"))])
		word(text(at(m, "response", "subtype")))
	}
	return kind
}

var (
	uuidRE    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeRE    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	addressRE = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	socketRE  = regexp.MustCompile(`\S*/\d+\.sock\b`) // another directory if the path would be too long for a socket
	taskIDRE  = regexp.MustCompile(`"task_id":"([0-9a-z]{6,})"`)
	measureRE = regexp.MustCompile(`(?i)(_ms|Ms|duration|^pid|mtime|end_time|elapsed_time_seconds|retry_delay)$|^duration`)
)

// idNames are members with names that each CLI chooses for itself.
var idNames = map[string]bool{
	"request_id": true, "task_id": true, "run_id": true, "runId": true, "agent_id": true, "agentId": true, "progressToken": true,
}

// plainer returns a function that removes from a JSON value what varies from run to
// run.
func (o *Outcome) plainer() func(v any, name string) any {
	dashes := regexp.MustCompile(`[^A-Za-z0-9]`)
	base := filepath.Dir(o.Dir)
	replace := []string{}
	// Longer paths first, and each also in the form that it has in names.
	for _, p := range []struct{ path, word string }{{o.Dir, "${dir}"}, {o.Home, "${home}"}, {filepath.Join(base, "tmp"), "${tmp}"}, {base, "${base}"}} {
		replace = append(replace, p.path, p.word, dashes.ReplaceAllString(p.path, "-"), p.word)
	}
	replace = append(replace, o.url, "${api}")
	seen := map[string]bool{}
	for i, id := range o.Sessions {
		if id != "" && !seen[id] {
			seen[id] = true
			replace = append(replace, id, fmt.Sprintf("${session-%d}", i+1))
		}
	}
	for _, p := range o.Processes {
		for _, raw := range p.CLI {
			for _, m := range taskIDRE.FindAllSubmatch(raw, -1) {
				replace = append(replace, string(m[1]), "${task}")
			}
		}
	}
	paths := strings.NewReplacer(replace...)
	var plain func(v any, name string) any
	plain = func(v any, name string) any {
		switch v := v.(type) {
		case string:
			s := socketRE.ReplaceAllLiteralString(v, "${socket}")
			s = paths.Replace(s)
			s = uuidRE.ReplaceAllLiteralString(s, "${uuid}")
			s = timeRE.ReplaceAllLiteralString(s, "${time}")
			s = addressRE.ReplaceAllLiteralString(s, "${address}")
			if idNames[name] {
				return "${id}"
			}
			// The errors of an input are JSON after a marker.
			if list, ok := strings.CutPrefix(s, "InputValidationError: "); ok {
				d := json.NewDecoder(strings.NewReader(list))
				d.UseNumber()
				var issues []any
				if d.Decode(&issues) == nil {
					return map[string]any{"InputValidationError": issues}
				}
			}
			return s
		case json.Number:
			if measureRE.MatchString(name) || idNames[name] {
				return json.Number("0")
			}
			return v
		case []any:
			out := make([]any, len(v))
			for i, e := range v {
				out[i] = plain(e, name)
			}
			return out
		case map[string]any:
			out := make(map[string]any, len(v))
			_, rpc := v["jsonrpc"]
			for key, e := range v {
				if rpc && key == "id" {
					key, e = "id", json.Number("0")
				}
				out[text(plain(key, ""))] = plain(e, key)
			}
			return out
		}
		return v
	}
	return plain
}

func compareLines(scenario string, a, b []line) []Difference {
	var all []Difference
	add := func(d Difference) {
		d.Scenario = scenario
		all = append(all, d)
	}
	onlyA, onlyB, pairs := align(a, b)
	for _, p := range pairs {
		for _, d := range compareValues(p[0].value, p[1].value) {
			d.Kind, d.Line = p[0].kind, p[0].n
			add(d)
		}
	}
	// A line that both have, but in different places.
	for _, la := range onlyA {
		if i := slices.IndexFunc(onlyB, func(l line) bool { return l.kind == la.kind }); i >= 0 {
			lb := onlyB[i]
			onlyB = slices.Delete(onlyB, i, i+1)
			add(Difference{Kind: la.kind, Line: la.n, What: "order", A: fmt.Sprint("line ", la.n), B: fmt.Sprint("line ", lb.n)})
			for _, d := range compareValues(la.value, lb.value) {
				d.Kind, d.Line = la.kind, la.n
				add(d)
			}
			continue
		}
		add(Difference{Kind: la.kind, Line: la.n, What: "missing", A: brief(la.value)})
	}
	for _, lb := range onlyB {
		add(Difference{Kind: lb.kind, What: "extra", B: brief(lb.value)})
	}
	slices.SortStableFunc(all, func(x, y Difference) int { return x.Line - y.Line })
	return all
}

// align finds the longest common subsequence of kinds: the pairs of lines that match,
// and the lines that only one side has.
func align(a, b []line) (onlyA, onlyB []line, pairs [][2]line) {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].kind == b[j].kind {
				n[i][j] = n[i+1][j+1] + 1
			} else {
				n[i][j] = max(n[i+1][j], n[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i].kind == b[j].kind:
			pairs = append(pairs, [2]line{a[i], b[j]})
			i++
			j++
		case n[i+1][j] >= n[i][j+1]:
			onlyA = append(onlyA, a[i])
			i++
		default:
			onlyB = append(onlyB, b[j])
			j++
		}
	}
	return append(onlyA, a[i:]...), append(onlyB, b[j:]...), pairs
}

// compareValues lists paths that only one side has, paths whose JSON kinds differ, and
// values that differ.
func compareValues(a, b any) []Difference {
	shapeA, shapeB := map[string]map[string]any{}, map[string]map[string]any{}
	shape(a, "", shapeA)
	shape(b, "", shapeB)
	var all []Difference
	odd := map[string]bool{} // a difference of a path covers everything below it
	below := func(path string) bool {
		for p := range odd {
			if path != p && (strings.HasPrefix(path, p+".") || strings.HasPrefix(path, p+"[")) {
				return true
			}
		}
		return false
	}
	paths := map[string]bool{}
	for _, s := range []map[string]map[string]any{shapeA, shapeB} {
		for p := range s {
			paths[p] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		ka, kb := shapeA[path], shapeB[path]
		if below(path) {
			continue
		}
		kinds := func(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), "|") }
		switch {
		case kb == nil:
			odd[path] = true
			all = append(all, Difference{Path: path, What: "missing", A: kinds(ka) + " " + example(ka)})
		case ka == nil:
			odd[path] = true
			all = append(all, Difference{Path: path, What: "extra", B: kinds(kb) + " " + example(kb)})
		case kinds(ka) != kinds(kb):
			odd[path] = true
			all = append(all, Difference{Path: path, What: "kind", A: kinds(ka) + " " + example(ka), B: kinds(kb) + " " + example(kb)})
		}
	}
	values(a, b, "", func(path string, va, vb any) {
		if !odd[path] && !below(path) {
			what := "value"
			if a, b := text(va), text(vb); strings.Contains(a, " ") && strings.Contains(b, " ") && markers(a) == markers(b) {
				what = "words"
			}
			all = append(all, Difference{Path: path, What: what, A: brief(va), B: brief(vb)})
		}
	})
	return all
}

// markers returns the parts of a text that programs look for, although the text is for
// the model or for people: how an error is wrapped, and its start.
func markers(s string) string {
	return markersRE.FindString(s) + fmt.Sprint(strings.HasSuffix(s, "</tool_use_error>"), strings.HasSuffix(s, "</persisted-output>"))
}

var markersRE = regexp.MustCompile(`^(<tool_use_error>)?(Error: )?(InputValidationError: )?(Exit code \d+|E[A-Z]{3,}: |<persisted-output>|\[Request interrupted)?`)

// shape records the JSON kinds at each path, each with an example.
func shape(v any, path string, into map[string]map[string]any) {
	kind := "null"
	switch v := v.(type) {
	case bool:
		kind = "bool"
	case string:
		kind = "string"
	case json.Number, float64:
		kind = "number"
	case []any:
		kind = "array"
		for _, e := range v {
			shape(e, path+"[]", into)
		}
	case map[string]any:
		kind = "object"
		for key, e := range v {
			shape(e, strings.TrimPrefix(path+"."+key, "."), into)
		}
	}
	if into[path] == nil {
		into[path] = map[string]any{}
	}
	into[path][kind] = v
}

func example(kinds map[string]any) string {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		return brief(kinds[kind])
	}
	return ""
}

// values calls f for each value that differs between both sides at the same place; for
// arrays of different lengths once.
func values(a, b any, path string, f func(path string, a, b any)) {
	switch va := a.(type) {
	case []any:
		vb, ok := b.([]any)
		if !ok {
			return
		}
		if len(va) != len(vb) {
			f(path, va, vb)
			return
		}
		for i := range va {
			values(va[i], vb[i], path+"[]", f)
		}
	case map[string]any:
		vb, ok := b.(map[string]any)
		if !ok {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(va)) {
			if other, ok := vb[key]; ok {
				values(va[key], other, strings.TrimPrefix(path+"."+key, "."), f)
			}
		}
	case string:
		if vb, ok := b.(string); ok && va != vb {
			f(path, a, b)
		}
	case json.Number:
		// Sums of dollars are rounded differently.
		if vb, ok := b.(json.Number); ok && va != vb {
			x, errA := va.Float64()
			y, errB := vb.Float64()
			if errA != nil || errB != nil || math.Abs(x-y) > 1e-12 {
				f(path, a, b)
			}
		}
	default:
		if fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b) && a != b {
			f(path, a, b)
		}
	}
}

//go:embed accepted.txt
var acceptedText string

// An Acceptance is an intended kind of difference between the official CLI and ours.
type Acceptance struct {
	Scenario, Kind, Path, What string // with * for anything and {a,b} for either; a scenario may be one line of it, as name:n
	Reason                     string
	Line                       int  // in accepted.txt
	Maybe                      bool // it need not match anything

	match [4]*regexp.Regexp
}

// Accepted reads accepted.txt.
func Accepted() ([]*Acceptance, error) { return parseAccepted(acceptedText) }

func parseAccepted(list string) ([]*Acceptance, error) {
	var all []*Acceptance
	s := bufio.NewScanner(strings.NewReader(list))
	for n := 1; s.Scan(); n++ {
		text := strings.TrimSpace(s.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		text, maybe := strings.CutPrefix(text, "?")
		text, reason, _ := strings.Cut(text, "#")
		columns := strings.Split(text, "|")
		if reason = strings.TrimSpace(reason); len(columns) != 4 || reason == "" {
			return nil, fmt.Errorf("accepted.txt:%d: not scenario | kind | path | what # reason", n)
		}
		var match [4]*regexp.Regexp
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
			match[i] = columnRE(columns[i])
		}
		all = append(all, &Acceptance{columns[0], columns[1], columns[2], columns[3], reason, n, maybe, match})
	}
	return all, s.Err()
}

var eitherRE = regexp.MustCompile(`\\\{(.*?)\\\}`)

// columnRE returns the regular expression of a column of accepted.txt.
func columnRE(column string) *regexp.Regexp {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(column), `\*`, ".*")
	pattern = eitherRE.ReplaceAllStringFunc(pattern, func(s string) string {
		return "(" + strings.ReplaceAll(eitherRE.FindStringSubmatch(s)[1], ",", "|") + ")"
	})
	return regexp.MustCompile("^" + pattern + "$")
}

// Covers reports whether a difference is of this kind.
func (a *Acceptance) Covers(d Difference) bool {
	for i, s := range []string{d.Kind, d.Path, d.What} {
		if !a.match[i+1].MatchString(s) {
			return false
		}
	}
	return a.match[0].MatchString(d.Scenario) || a.match[0].MatchString(fmt.Sprint(d.Scenario, ":", d.Line))
}

// Sift returns the differences that are not accepted, and the acceptances that covered
// none.
func Sift(differences []Difference, accepted []*Acceptance) (left []Difference, unused []*Acceptance) {
	used := map[*Acceptance]bool{}
	for _, d := range differences {
		covered := false
		for _, a := range accepted {
			if a.Covers(d) {
				covered, used[a] = true, true
			}
		}
		if !covered {
			left = append(left, d)
		}
	}
	for _, a := range accepted {
		if !used[a] && !a.Maybe {
			unused = append(unused, a)
		}
	}
	return left, unused
}
