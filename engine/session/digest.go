package session

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// window is how much of the begin and of the end of a log a list reads.
const window = 64 << 10

// A digest is what the begin and the end of a log tell of it.
type digest struct {
	sidechain    bool
	conversation bool // there is a message in it
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

// title is what a session is called.
func (d *digest) title() string {
	for _, s := range []string{d.customTitle, d.aiTitle, d.lastPrompt, d.summary, d.firstPrompt} {
		if s != "" {
			return s
		}
	}
	return ""
}

// titled reports whether a title was given to the session.
func (d *digest) titled(title string) bool {
	return strings.EqualFold(strings.TrimSpace(d.customTitle), title) || d.customTitle == "" && strings.EqualFold(strings.TrimSpace(d.aiTitle), title)
}

// ends reads the begin and the end of a session's file; they may overlap.
func ends(root *os.Root, p place) (head, tail []byte, err error) {
	file, err := root.OpenFile(p.name(), os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	head = make([]byte, min(window, p.size))
	n, err := io.ReadFull(file, head)
	head = head[:n]
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, nil, err
	}
	if p.size <= window {
		return head, head, nil
	}
	tail = make([]byte, window)
	n, err = file.ReadAt(tail, p.size-window)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	return head, tail[:n], nil
}

// digestPlace reads what a list shows of a session.
func digestPlace(root *os.Root, p place) (*digest, error) {
	head, tail, err := ends(root, p)
	if err != nil {
		return nil, err
	}
	return digestOf(head, tail), nil
}

// isConversation reports whether a session is one that a person would go on with.
func isConversation(root *os.Root, p place) (bool, error) {
	d, err := digestPlace(root, p)
	return err == nil && d.conversation && !d.sidechain, err
}

// digestOf takes the begin and the end of a log apart.
func digestOf(head, tail []byte) *digest {
	d := &digest{}
	d.readHead(head)
	d.readTail(tail)
	last := func(dst *string, key string) {
		if *dst == "" {
			*dst = lastText(head, key)
		}
	}
	last(&d.customTitle, "customTitle")
	last(&d.aiTitle, "aiTitle")
	return d
}

// readHead reads what the first lines tell.
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

// readTail reads what the last lines tell. The last of each kind wins.
func (d *digest) readTail(tail []byte) {
	d.customTitle = lastText(tail, "customTitle")
	d.aiTitle = lastText(tail, "aiTitle")
	d.lastPrompt = lastText(tail, "lastPrompt")
	d.summary = lastText(tail, "summary")
	if branch := lastText(tail, "gitBranch"); branch != "" {
		d.branch = branch
	}
	const tagged = `{"type":"tag"`
	for rest := tail; ; {
		i := bytes.LastIndex(rest, []byte(tagged))
		if i < 0 {
			break
		}
		if i == 0 || rest[i-1] == '\n' {
			line, _, _ := bytes.Cut(tail[i:], []byte("\n"))
			d.tag, _ = topText(line, "tag")
			break
		}
		rest = rest[:i]
	}
}

func setOnce(dst *string, s string) {
	if *dst == "" {
		*dst = s
	}
}

// lastText returns the last member of a name at the top level of a line that is a
// text. Only the lines that hold the name are taken apart.
func lastText(lines []byte, name string) string {
	key := []byte(`"` + name + `"`)
	for end := len(lines); end > 0; {
		i := bytes.LastIndex(lines[:end], key)
		if i < 0 {
			return ""
		}
		start := bytes.LastIndexByte(lines[:i], '\n') + 1
		line, _, _ := bytes.Cut(lines[start:], []byte("\n"))
		if text, ok := topText(line, name); ok {
			return text
		}
		end = start
	}
	return ""
}

// topText returns a text at the top level of a line, which may be cut off.
func topText(line []byte, name string) (string, bool) {
	if !bytes.HasPrefix(line, []byte("{")) {
		return "", false
	}
	d := jsontext.NewDecoder(bytes.NewReader(line), lenient...)
	d.ReadToken()
	found, ok := "", false
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			break
		}
		if key.String() == name && d.PeekKind() == '"' {
			tok, err := d.ReadToken()
			if err != nil {
				break
			}
			found, ok = tok.String(), true
			continue
		}
		if d.SkipValue() != nil {
			break
		}
	}
	return found, ok
}

// A peeked line is what could be read of it.
type peeked struct {
	typ, timestamp, cwd, branch, entrypoint string
	sidechain, meta, compact                bool
	message                                 json.RawMessage
}

func (p *peeked) read(line []byte) {
	d := jsontext.NewDecoder(bytes.NewReader(line), lenient...)
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
		return
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return
		}
		name := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return
		}
		text := func(dst *string) {
			if v.Kind() == '"' {
				b, _ := jsontext.AppendUnquote(nil, v)
				*dst = string(b)
			}
		}
		switch name {
		case "type":
			text(&p.typ)
		case "timestamp":
			text(&p.timestamp)
		case "cwd":
			text(&p.cwd)
		case "gitBranch":
			text(&p.branch)
		case "entrypoint":
			text(&p.entrypoint)
		case "isSidechain":
			p.sidechain = v.Kind() == 't'
		case "isMeta":
			p.meta = v.Kind() == 't'
		case "isCompactSummary":
			p.compact = v.Kind() == 't'
		case "message":
			p.message = json.RawMessage(v.Clone())
		}
	}
}

var (
	// notPrompts are texts that a program put in the place of a prompt.
	notPrompts = regexp.MustCompile(`^(?:<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]|\s*<ide_opened_file>[\s\S]*</ide_opened_file>\s*$|\s*<ide_selection>[\s\S]*</ide_selection>\s*$)`)
	commands   = regexp.MustCompile(`<command-name>(.*?)</command-name>`)
)

// promptMax is how much of a prompt a list shows.
const promptMax = 200

// promptOf returns the text of a message that a person wrote, or else the name of
// the command that it is.
func promptOf(message json.RawMessage) (text, command string) {
	for _, s := range texts(message) {
		s = strings.TrimSpace(strings.ReplaceAll(s, "\n", " "))
		if s == "" {
			continue
		}
		if m := commands.FindStringSubmatch(s); m != nil {
			setOnce(&command, m[1])
			continue
		}
		if notPrompts.MatchString(s) {
			continue
		}
		if utf8.RuneCountInString(s) > promptMax {
			s = strings.TrimSpace(string([]rune(s)[:promptMax])) + "…"
		}
		return s, ""
	}
	return "", command
}

// texts returns the texts of a message, none if it holds results of calls.
func texts(message json.RawMessage) []string {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil || len(m.Content) == 0 {
		return nil
	}
	if m.Content[0] == '"' {
		var s string
		json.Unmarshal(m.Content, &s)
		return []string{s}
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(m.Content, &blocks) != nil {
		return nil
	}
	var all []string
	for _, b := range blocks {
		switch b.Type {
		case "tool_result":
			return nil
		case "text":
			all = append(all, b.Text)
		}
	}
	return all
}
