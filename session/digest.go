package session

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/internal/rawjson"
)

// window is how many bytes of the beginning and of the end of a log a list reads.
const window = 64 << 10

// A digest is the information about a session in the beginning and the end of its log.
type digest struct {
	sidechain    bool
	conversation bool // it contains a message
	customTitle  string
	aiTitle      string
	lastPrompt   string
	summary      string
	firstPrompt  string
	branch       string
	cwd          string
	tag          string
	entrypoint   string
	created      time.Time
}

// title returns the name of a session for a list.
func (d *digest) title() string {
	for _, s := range []string{d.customTitle, d.aiTitle, d.lastPrompt, d.summary, d.firstPrompt} {
		if s != "" {
			return s
		}
	}
	return ""
}

// titled reports whether the session has the given title.
func (d *digest) titled(title string) bool {
	return strings.EqualFold(strings.TrimSpace(d.customTitle), title) || d.customTitle == "" && strings.EqualFold(strings.TrimSpace(d.aiTitle), title)
}

// buffers are reused memory for the beginning and the end of a file.
var buffers = sync.Pool{New: func() any { return new([2 * window]byte) }}

// ends reads the beginning and the end of a session's file into a buffer; they may overlap.
func ends(root *os.Root, p place, buf *[2 * window]byte) (head, tail []byte, err error) {
	file, err := root.OpenFile(p.name(), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	head = buf[:min(window, p.size)]
	if p.size <= 2*window {
		head = buf[:p.size] // with the tail
	}
	n, err := io.ReadFull(file, head)
	head = head[:n]
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, nil, err
	}
	if p.size <= window {
		return head, head, nil
	}
	if p.size <= 2*window {
		return head[:min(window, n)], head[max(0, n-window):], nil
	}
	tail = buf[window:]
	n, err = file.ReadAt(tail, p.size-window)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	return head, tail[:n], nil
}

// digestPlace returns the digest of a session.
func (f *Files) digestPlace(root *os.Root, p place) (*digest, error) {
	if p.old {
		return f.digestOld(p)
	}
	if p.packed {
		h, err := readPacked(root, p)
		if err != nil {
			return nil, err
		}
		return h.Kept.digest(), nil
	}
	buf := buffers.Get().(*[2 * window]byte)
	defer buffers.Put(buf)
	head, tail, err := ends(root, p, buf)
	if err != nil {
		return nil, err
	}
	d := digestOf(head, tail)
	if d.firstPrompt == "" && p.size > window {
		// The first prompt may be long, for example if it contains a picture.
		if file, err := root.OpenFile(p.name(), os.O_RDONLY|nonblock, 0); err == nil {
			more := make([]byte, min(p.size, 32*window))
			n, _ := io.ReadFull(file, more)
			file.Close()
			d.readHead(more[:n])
		}
	}
	return d, nil
}

// digestOf parses the beginning and the end of a log. The last value of each kind wins.
func digestOf(head, tail []byte) *digest {
	d := &digest{}
	d.readHead(head)
	last := lastTexts{}
	last.read(tail, false)
	if len(tail) > 0 && &tail[0] != &head[0] {
		last.read(head, true)
	}
	d.customTitle, d.aiTitle, d.lastPrompt, d.summary, d.tag = textOf(last[customTitle]), textOf(last[aiTitle]), textOf(last[lastPrompt]), textOf(last[summary]), textOf(last[tag])
	if branch := textOf(last[gitBranch]); branch != "" {
		d.branch = branch
	}
	return d
}

// lastTexts are the last texts of some members at the top level of lines, as JSON; nil if not
// found.
type lastTexts [6][]byte

const (
	customTitle = iota // titles count anywhere
	aiTitle
	lastPrompt
	summary
	tag
	gitBranch
)

// read searches for all of them, or for the titles that were not found yet. Lines may be cut
// off.
func (l *lastTexts) read(lines []byte, titles bool) {
	names, before := [...]string{"customTitle", "aiTitle", "lastPrompt", "summary", "tag", "gitBranch"}, *l
	if titles && !bytes.Contains(lines, []byte(`Title"`)) {
		return
	}
	for line := range bytes.Lines(lines) {
		var seen [len(names)][]byte
		var typ []byte
		rawjson.Walk(line, func(name, value []byte) {
			if value[0] != '"' {
				return
			}
			if string(name) == "type" {
				typ = value
			} else if i := slices.Index(names[:], string(name)); i >= 0 && (!titles || i < lastPrompt && before[i] == nil) {
				seen[i] = value
			}
		})
		for i, v := range seen {
			if v != nil && (i != summary && i != tag || string(typ) == `"`+names[i]+`"`) {
				l[i] = v
			}
		}
	}
}

// readHead parses the first lines.
func (d *digest) readHead(head []byte) {
	command := ""
	first := true
	for line := range bytes.Lines(head) {
		var p peeked
		p.read(line)
		if first && p.typ != "" {
			first = false
			d.sidechain = p.sidechain
		}
		if d.created.IsZero() && p.timestamp != "" {
			d.created, _ = time.Parse(time.RFC3339, p.timestamp)
		}
		setOnce(&d.cwd, p.cwd)
		setOnce(&d.branch, p.branch)
		setOnce(&d.entrypoint, p.entrypoint)
		if p.typ == typeUser || p.typ == typeAssistant {
			d.conversation = true
		}
		if p.typ == typeUser && !p.meta && !p.compact {
			if text, name := promptOf(p.message); text != "" {
				d.firstPrompt = text
				break
			} else if command == "" {
				command = name
			}
		}
	}
	if d.firstPrompt == "" {
		d.firstPrompt = command
	}
}

func setOnce(dst *string, s string) {
	if *dst == "" {
		*dst = s
	}
}

// A peeked holds the members that could be read from a line.
type peeked struct {
	typ, timestamp, cwd, branch, entrypoint string
	sidechain, meta, compact                bool
	message                                 json.RawMessage
}

func (p *peeked) read(line []byte) {
	d := jsontext.NewDecoder(bytes.NewBuffer(line), lenient...)
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return
		}
		var text *string
		var flag *bool
		switch string(name) {
		case `"type"`:
			text = &p.typ
		case `"timestamp"`:
			text = &p.timestamp
		case `"cwd"`:
			text = &p.cwd
		case `"gitBranch"`:
			text = &p.branch
		case `"entrypoint"`:
			text = &p.entrypoint
		case `"isSidechain"`:
			flag = &p.sidechain
		case `"isMeta"`:
			flag = &p.meta
		case `"isCompactSummary"`:
			flag = &p.compact
		}
		message := string(name) == `"message"`
		v, err := d.ReadValue()
		switch {
		case err != nil:
			return
		case text != nil && v.Kind() == '"':
			b, _ := jsontext.AppendUnquote(nil, v)
			*text = string(b)
		case flag != nil:
			*flag = v.Kind() == 't'
		case message:
			p.message = json.RawMessage(v) // of the line
		}
	}
}

var (
	// notPrompts matches texts that a program put in the place of a prompt.
	notPrompts = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:<[a-z][\w-]*[\s>]|\[Request interrupted by user[^\]]*\])`)
	})
	commands = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<command-name>(.*?)</command-name>`) })
	shells   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<bash-input>([\s\S]*?)</bash-input>`) })
)

// promptMax is how much of a prompt a list shows, in UTF-16 units.
const promptMax = 200

// promptOf returns the text of a message that a person wrote, or else the name of its command.
func promptOf(message json.RawMessage) (text, command string) {
	for _, s := range texts(message) {
		s = strings.TrimSpace(strings.ReplaceAll(s, "\n", " "))
		if s == "" {
			continue
		}
		if m := commands().FindStringSubmatch(s); m != nil {
			setOnce(&command, m[1])
			continue
		}
		if m := shells().FindStringSubmatch(s); m != nil {
			return "! " + strings.TrimSpace(m[1]), ""
		}
		if !notPrompts().MatchString(s) {
			return clip(s), ""
		}
	}
	return "", command
}

// clip truncates a text that is too long for a list.
func clip(s string) string {
	n := 0
	for i, r := range s {
		if n += utf16.RuneLen(r); n > promptMax {
			return strings.TrimSpace(s[:i]) + "…"
		}
	}
	return s
}

// texts returns the texts of a message, or nil if it contains results of calls.
func texts(message json.RawMessage) []string {
	content := rawjson.Get(message, "content")
	if len(content) > 0 && content[0] == '"' {
		return []string{textOf(content)}
	}
	var all []string
	for _, b := range rawjson.Elements(content) {
		switch rawjson.String(b, "type") {
		case "tool_result":
			return nil
		case "text":
			all = append(all, rawjson.String(b, "text"))
		}
	}
	return all
}
