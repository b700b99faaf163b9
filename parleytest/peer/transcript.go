package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Side is an end of the protocol.
type Side int

// The two ends.
const (
	CLI  Side = iota // the agent: its frames are "out" in a transcript
	Host             // the SDK: its frames are "in"
)

// TranscriptOptions configure how a transcript becomes a script. A nil pointer is
// the zero value.
type TranscriptOptions struct {
	// Name is the name of the script. If empty, it is "transcript".
	Name string
	// Side is the side that the script plays: the frames of that side are sent, the
	// frames of the other are expected.
	Side Side
	// Exact expects complete frames of the other side, except for their ids. If
	// false, a frame is expected only by its kind: its type and subtype, and the
	// request that it answers.
	Exact bool
	// Timing keeps the pauses. If false, everything is sent as soon as possible.
	Timing bool
}

// FromTranscript converts a transcript, a line of JSON for each [Event], to a
// script. Ids that one side created and the other echoes become variables. Frames
// of the other side may come in any order that answers its requests: a host that
// awaits the response to initialize before it sends its prompt can be played from a
// transcript in which both were sent at once.
//
// The script is ordinary text: print it, shorten it, keep it.
func FromTranscript(r io.Reader, opts *TranscriptOptions) (*Script, error) {
	var o TranscriptOptions
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = "transcript"
	}
	events, err := readEvents(o.Name, r)
	if err != nil {
		return nil, err
	}
	c := &converter{opts: o, recv: "in", send: "out", vars: make(map[string]string)}
	if o.Side == Host {
		c.recv, c.send = "out", "in"
	}
	text, err := c.convert(events)
	if err != nil {
		return nil, err
	}
	return Parse(o.Name, text)
}

// A converter converts one transcript to the text of a script.
type converter struct {
	opts       TranscriptOptions
	recv, send string
	moves      []move
	vars       map[string]string // id -> variable, for ids of the other side that are echoed
	argv       []string
	buf        bytes.Buffer
	last       int64 // time of the previous event
}

// A move is the meaning of one event for the script.
type move struct {
	kind   string // "send", "recv", "eof", or the dir of the event
	millis int64
	raw    []byte // compact JSON of a frame
	value  any
	text   string // of a line that is not JSON, of stderr, of a note
	isText bool
	code   int
	paths  map[string]bool // in value: positions of ids that the other side echoes
}

func (c *converter) convert(events []Event) ([]byte, error) {
	for i, e := range events {
		if err := c.collect(i+1, e); err != nil {
			return nil, err
		}
	}
	c.bind()
	fmt.Fprintf(&c.buf, "Made from a transcript; it plays the %s.\n\n-- steps --\n", map[Side]string{CLI: "CLI", Host: "host"}[c.opts.Side])
	if c.argv != nil {
		argv, _ := marshal(c.argv) // strings always encode
		fmt.Fprintf(&c.buf, "argv %s\n", argv)
	}
	c.buf.WriteString("others keep\n")
	c.emit()
	return c.buf.Bytes(), nil
}

// collect handles one event.
func (c *converter) collect(line int, e Event) error {
	m := move{kind: e.Dir, millis: e.Millis}
	bad := func(err error) error {
		return &ScriptError{c.opts.Name, line, fmt.Sprintf("bad %s event: %v", e.Dir, err)}
	}
	switch e.Dir {
	case "in", "out":
		m.kind = "recv"
		if e.Dir == c.send {
			m.kind = "send"
		}
		return c.collectFrame(line, e, m)
	case "argv":
		if err := json.Unmarshal(e.Msg, &c.argv); err != nil {
			return bad(err)
		}
		if len(c.argv) > 0 && !strings.HasPrefix(c.argv[0], "-") {
			c.argv = c.argv[1:] // the executable
		}
		return nil
	case "env":
		return nil
	case "exit":
		if err := json.Unmarshal(e.Msg, &m.code); err != nil {
			return bad(err)
		}
		// Input that ended after the CLI had exited did not end it.
		if n := len(c.moves); n > 0 && c.moves[n-1].kind == "eof" && m.millis-c.moves[n-1].millis <= 2 {
			c.moves = c.moves[:n-1]
		}
	case "stderr", "note":
		if err := json.Unmarshal(e.Msg, &m.text); err != nil {
			return bad(err)
		}
		if e.Dir == "stderr" {
			break
		}
		switch {
		case m.text == "stdin closed" || strings.HasPrefix(m.text, "stdin EOF"):
			m.kind = "eof"
			if slices.ContainsFunc(c.moves, func(m move) bool { return m.kind == "eof" }) {
				return nil
			}
		case strings.HasPrefix(m.text, "write failed"):
			// A frame that the host could not write is not a move.
			if n := len(c.moves); n > 0 && c.isHostFrame(c.moves[n-1]) {
				c.moves = c.moves[:n-1]
			}
		}
	default:
		return &ScriptError{c.opts.Name, line, fmt.Sprintf("unknown dir %q", e.Dir)}
	}
	c.moves = append(c.moves, m)
	return nil
}

func (c *converter) isHostFrame(m move) bool {
	return m.kind == "send" && c.opts.Side == Host || m.kind == "recv" && c.opts.Side == CLI
}

func (c *converter) collectFrame(line int, e Event, m move) error {
	var special struct {
		Raw  *string `json:"_raw"`
		Note *string `json:"_note"`
	}
	_ = json.Unmarshal(e.Msg, &special) // anything else is a frame
	switch {
	case special.Note != nil && m.kind == "send":
		return &ScriptError{c.opts.Name, line, "the frame is only described, it cannot be sent: " + *special.Note}
	case special.Note != nil:
		m.raw, m.value = []byte(`"$_"`), "$_"
		c.moves = append(c.moves, m)
		return nil
	case special.Raw != nil && m.kind == "send":
		m.text, m.isText = *special.Raw, true
		c.moves = append(c.moves, m)
		return nil
	case special.Raw != nil:
		for l := range strings.Lines(*special.Raw) {
			if l = strings.TrimSpace(l); l == "" {
				continue
			}
			part := m
			if v, err := decode([]byte(l)); err == nil {
				part.raw, part.value = compact([]byte(l)), v
			} else {
				part.text, part.isText = l, true
			}
			c.moves = append(c.moves, part)
		}
		return nil
	}
	v, err := decode(e.Msg)
	if err != nil {
		return &ScriptError{c.opts.Name, line, fmt.Sprintf("bad frame: %v", err)}
	}
	m.raw, m.value = compact(e.Msg), v
	c.moves = append(c.moves, m)
	return nil
}

// compact returns JSON that is known to be valid without white space.
func compact(raw []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return raw
	}
	return b.Bytes()
}

// isID reports whether a member of that name holds an id.
func isID(key string) bool {
	k := strings.ToLower(key)
	return strings.HasSuffix(k, "id") || strings.HasSuffix(k, "uuid") || strings.HasSuffix(k, "uuids")
}

// eachID calls f for every id in a decoded frame.
func eachID(path, key string, v any, f func(path, id string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			eachID(path+"."+k, k, v[k], f)
		}
	case []any:
		for i, e := range v {
			eachID(path+"["+strconv.Itoa(i)+"]", key, e, f)
		}
	case string:
		if v != "" && isID(key) {
			f(path, v)
		}
	}
}

// bind finds the ids that the other side creates and this side echoes.
func (c *converter) bind() {
	type place struct {
		move int
		path string
	}
	theirs := make(map[string]place) // by id, where it was seen first
	ours := make(map[string]bool)
	for i := range c.moves {
		m := &c.moves[i]
		if m.isText || m.kind != "send" && m.kind != "recv" {
			continue
		}
		eachID("", "", m.value, func(path, id string) {
			p, seen := theirs[id]
			switch {
			case m.kind == "recv" && !seen && !ours[id]:
				theirs[id] = place{i, path}
			case m.kind == "send" && !seen:
				ours[id] = true
			case m.kind == "send" && c.vars[id] == "":
				c.vars[id] = "v" + strconv.Itoa(len(c.vars)+1)
				from := &c.moves[p.move]
				if from.paths == nil {
					from.paths = make(map[string]bool)
				}
				from.paths[p.path] = true
			}
		})
	}
}

// emit writes the steps. An expectation is written as late as the frames that
// this side sends allow.
func (c *converter) emit() {
	var pending []move
	flush := func() {
		for _, m := range pending {
			c.expectation(m)
		}
		pending = nil
	}
	for _, m := range c.moves {
		switch m.kind {
		case "recv":
			pending = append(pending, m)
		case "send":
			if i := answers(m, pending); i >= 0 && c.opts.Side == CLI {
				c.expectation(pending[i])
				pending = slices.Delete(pending, i, i+1)
			} else if !c.isAnswer(m) || c.opts.Side == Host {
				flush()
			}
			c.pause(m)
			c.sending(m)
		case "eof":
			if c.opts.Side == CLI {
				pending = append(pending, m)
				break
			}
			flush()
			c.pause(m)
			c.buf.WriteString("close\n")
		case "stderr":
			if c.opts.Side == CLI {
				fmt.Fprintf(&c.buf, "stderr %s\n", strconv.Quote(m.text+"\n"))
			}
		case "note":
			fmt.Fprintf(&c.buf, "# %s\n", strings.ReplaceAll(m.text, "\n", " "))
			if sig := sentSignal(m.text); sig != "" && c.opts.Side == Host {
				flush()
				c.pause(m)
				fmt.Fprintf(&c.buf, "signal %s\n", sig)
			}
		case "exit":
			flush()
			switch {
			case c.opts.Side == Host:
				fmt.Fprintf(&c.buf, "< exit %d\n", max(m.code, -1))
			case m.code < 0:
				c.buf.WriteString("! kill\n")
			default:
				fmt.Fprintf(&c.buf, "exit %d\n", m.code&255)
			}
			return
		}
	}
	flush()
}

func (c *converter) pause(m move) {
	if c.opts.Timing && m.millis > c.last {
		fmt.Fprintf(&c.buf, "wait %dms\n", m.millis-c.last)
	}
	c.last = m.millis
}

// sentSignal returns the signal that, according to a note, the host has sent, or
// "".
func sentSignal(note string) string {
	name, rest, _ := strings.Cut(note, " ")
	name = strings.TrimPrefix(name, "SIG")
	if (rest == "sent" || rest == "from SDK") && signals[name] != nil {
		return name
	}
	return ""
}

// isAnswer reports whether a frame answers a request.
func (c *converter) isAnswer(m move) bool {
	f, ok := m.value.(map[string]any)
	return ok && f["type"] == "control_response"
}

// answers returns the index of the pending request that a frame answers, or -1.
func answers(m move, pending []move) int {
	f, _ := m.value.(map[string]any)
	resp, _ := f["response"].(map[string]any)
	id, ok := resp["request_id"].(string)
	if !ok || f["type"] != "control_response" {
		return -1
	}
	return slices.IndexFunc(pending, func(p move) bool {
		req, _ := p.value.(map[string]any)
		return req["type"] == "control_request" && req["request_id"] == id
	})
}

func (c *converter) sending(m move) {
	if m.isText {
		fmt.Fprintf(&c.buf, "raw %s\n", strconv.Quote(m.text))
		return
	}
	fmt.Fprintf(&c.buf, "> %s\n", c.template(m.raw))
}

// template inserts the variables into a frame to send.
func (c *converter) template(raw []byte) []byte {
	var out []byte
	eachString(raw, func(part []byte, isString bool) {
		var s string
		if isString && json.Unmarshal(part, &s) == nil {
			if v := c.vars[s]; v != "" {
				out = append(out, `"$`+v+`"`...)
				return
			}
			part = bytes.ReplaceAll(part, []byte("$"), []byte("$$"))
		}
		out = append(out, part...)
	})
	return out
}

func (c *converter) expectation(m move) {
	switch {
	case m.kind == "eof":
		c.buf.WriteString("< eof\n")
	case m.isText:
		fmt.Fprintf(&c.buf, "< text %s\n", strconv.Quote(m.text))
	default:
		p, _ := c.prune("", "", m.value, m.paths)
		if _, ok := m.value.(map[string]any); ok && p == nil {
			p = map[string]any{}
		}
		if p == nil {
			p = "$_"
		}
		text, _ := marshal(p) // it was decoded from JSON
		fmt.Fprintf(&c.buf, "< %s\n", text)
	}
}

// kind holds the members that identify the kind of a frame.
var kind = map[string]bool{
	".type": true, ".subtype": true, ".request.subtype": true, ".response.subtype": true,
	".response.request_id": true,
}

// prune returns the expected part of a frame, and whether there is any.
func (c *converter) prune(path, key string, v any, binds map[string]bool) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any)
		for k, e := range v {
			if p, ok := c.prune(path+"."+k, k, e, binds); ok {
				out[k] = p
			}
		}
		return out, len(out) > 0 || c.opts.Exact
	case []any:
		var out []any
		wanted := 0
		for i, e := range v {
			p, ok := c.prune(path+"["+strconv.Itoa(i)+"]", key, e, binds)
			if !ok {
				p = "$_"
			}
			if out = append(out, p); ok {
				wanted = len(out)
			}
		}
		if c.opts.Exact {
			if out == nil {
				out = []any{}
			}
			return out, true
		}
		return append(out[:wanted:wanted], rest), wanted > 0
	case string:
		name := c.vars[v]
		switch {
		case name != "" && isID(key) && (c.opts.Exact || binds[path] || kind[path]):
			return "$" + name, true
		case c.opts.Exact && isID(key) && !kind[path]:
			return "$_", true
		case c.opts.Exact || kind[path]:
			return strings.ReplaceAll(v, "$", "$$"), true
		}
		return nil, false
	}
	return v, c.opts.Exact
}
