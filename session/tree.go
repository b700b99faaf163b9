package session

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-go/parley/internal/rawjson"
)

// A node holds what the tree needs of a record, and the position of its line.
type node struct {
	span
	uuid, parent string
	message      string // the id of the message that contains the block of an assistant record
	typ          string
	sidechain    bool
	team         bool
	meta         bool
	summary      bool // of a compaction
	boundary     bool // of a compaction
	child        bool // a record of the same conversation has it as its parent
}

// A span is the position of a line in a log.
type span struct {
	off int64
	len int
}

// A scan is the result of reading a log once, line by line. It holds positions, and no text.
type scan struct {
	nodes     []*node
	byUUID    map[string]*node
	loose     map[string]span // the last record of each type outside of the tree
	effects   map[string]effect
	corrupt   int
	corruptAt []int64
	from      int64 // position where reading started
	kept      int   // number of nodes from before that
	missing   bool  // a message that a compaction kept was not found
	unended   bool  // the last line is complete, but without a newline

	// An incomplete batch. If the log ends here, the whole batch is ignored.
	batch      []func()
	batchLeft  int
	batchStart int64
}

// A head holds the top-level members of a line.
type head struct {
	typ, subtype             string
	uuid, parent, message    string
	sidechain, meta, summary bool
	team, forked             bool
	more                     int // number of following records in the same write
	toolUseID, outcome       string
}

// readLines calls f for every complete line of a log, with its offset, and returns the text
// after the last newline, and its offset. A line is valid until f returns.
func readLines(r io.Reader, f func(line []byte, off int64) error) (off int64, rest []byte, err error) {
	return readLinesInto(new([]byte), r, f)
}

// lineRoom is the size of the buffer for lines, unless one is longer.
const lineRoom = 256 << 10

// readLinesInto is readLines with a buffer that is reused.
func readLinesInto(buffer *[]byte, r io.Reader, f func(line []byte, off int64) error) (off int64, rest []byte, err error) {
	if *buffer == nil {
		*buffer = make([]byte, lineRoom)
	}
	room := *buffer
	defer func() { *buffer = room }()
	buf := room[:0]
	scanned := 0 // bytes of buf without a newline
	for {
		if i := bytes.IndexByte(buf[scanned:], '\n'); i >= 0 {
			end := scanned + i + 1
			if err := f(buf[:end-1], off); err != nil {
				return off, nil, err
			}
			buf = buf[end:]
			off += int64(end)
			scanned = 0
			continue
		}
		scanned = len(buf)
		if len(buf) == 0 {
			buf = room[:0]
		} else if cap(buf)-len(buf) < 4<<10 {
			if len(buf) > len(room)/2 {
				room = make([]byte, 4*len(buf))
			}
			buf = room[:copy(room, buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n > 0 {
			continue
		}
		if err == io.EOF {
			return off, buf, nil
		}
		if err != nil {
			return off, nil, err
		}
	}
}

// headOf parses the top level of a line. Not every JSON value is a record.
func headOf(d *jsontext.Decoder, line []byte) (head, error) {
	var h head
	if h.readPlain(line) { // by far the most common
		return h, nil
	}
	return readHead(d, line)
}

// readHead is like headOf, for any line.
func readHead(d *jsontext.Decoder, line []byte) (head, error) {
	var h head
	d.Reset(bytes.NewBuffer(line), lenient...)
	if tok, err := d.ReadToken(); err != nil {
		return h, err
	} else if tok.Kind() != '{' {
		return h, errors.New("session: a line is not an object")
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return h, err
		}
		if err := h.readMember(d, name[1:len(name)-1]); err != nil {
			return h, err
		}
	}
	if _, err := d.ReadToken(); err != nil { // the closing brace
		return h, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return h, errors.New("session: more than one value on a line")
	}
	if h.typ == "" {
		return h, errors.New("session: a record without a type")
	}
	return h, nil
}

// readMember reads the value of a member.
func (h *head) readMember(d *jsontext.Decoder, name []byte) error {
	text, flag := h.target(name)
	switch string(name) {
	case "forkedFrom":
		h.forked = true
	case "teamName":
		h.team = d.PeekKind() == '"'
	case "message":
		return h.readMessage(d)
	case moreKey:
		if d.PeekKind() == '0' {
			tok, err := d.ReadToken()
			if err != nil {
				return err
			}
			if more, err := tok.Int(); err == nil && more > 0 && more < 1<<30 {
				h.more = int(more)
			}
			return nil
		}
	}
	switch kind := d.PeekKind(); {
	case text != nil && kind == '"':
		tok, err := d.ReadToken()
		if err == nil {
			*text = tok.String()
		}
		return err
	case flag != nil && kind == 't':
		*flag = true
	}
	return d.SkipValue()
}

// target returns the field that receives the text or the boolean of a member, if there is one.
func (h *head) target(name []byte) (text *string, flag *bool) {
	switch string(name) {
	case "type":
		return &h.typ, nil
	case "subtype":
		return &h.subtype, nil
	case "uuid":
		return &h.uuid, nil
	case "parentUuid":
		return &h.parent, nil
	case "toolUseId":
		return &h.toolUseID, nil
	case "outcome":
		return &h.outcome, nil
	case "isSidechain":
		return nil, &h.sidechain
	case "isMeta":
		return nil, &h.meta
	case "isCompactSummary":
		return nil, &h.summary
	}
	return nil, nil
}

// readPlain is headOf for a line without control characters. It looks only at the offsets of
// members, and skips a long text at the speed of memory. It reports false if the line needs a
// closer look. A record that passes and is not JSON fails when it is decoded.
func (h *head) readPlain(line []byte) bool {
	plain := !hasControls(line)
	return plain && rawjson.Walk(line, func(name, value []byte) {
		text, flag := h.target(name)
		if text == nil && flag == nil {
			switch string(name) {
			case "forkedFrom":
				h.forked = true
			case "teamName":
				h.team = value[0] == '"'
			case moreKey:
				plain = false
			case "message":
				if value[0] == '{' {
					text, value = &h.message, rawjson.Get(value, "id")
				}
			}
		}
		switch {
		case text != nil && len(value) > 0 && value[0] == '"':
			plain = plain && isPlainText(value)
			*text = textOfType(value[1 : len(value)-1])
		case flag != nil && value[0] == 't':
			*flag = true
		}
	}) && plain && h.typ != ""
}

// textOfType returns a text. It allocates no memory for the common types of records.
func textOfType(text []byte) string {
	switch string(text) {
	case typeUser:
		return typeUser
	case typeAssistant:
		return typeAssistant
	case typeAttachment:
		return typeAttachment
	}
	return string(text)
}

// isPlainText reports whether a JSON string is ASCII without escapes.
func isPlainText(v []byte) bool {
	const ones, highs, slashes = 0x0101010101010101, 0x8080808080808080, 0x5c5c5c5c5c5c5c5c
	v = v[1 : len(v)-1]
	for ; len(v) >= 8; v = v[8:] {
		x := binary.LittleEndian.Uint64(v)
		if (x|((x^slashes)-ones))&highs != 0 {
			return false
		}
	}
	for _, c := range v {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// hasControls reports whether a line has a control character, which no JSON string may have.
func hasControls(line []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(line) >= 32; line = line[32:] {
		a, b := binary.LittleEndian.Uint64(line), binary.LittleEndian.Uint64(line[8:])
		c, d := binary.LittleEndian.Uint64(line[16:]), binary.LittleEndian.Uint64(line[24:])
		if ((a-0x20*ones)&^a|(b-0x20*ones)&^b|(c-0x20*ones)&^c|(d-0x20*ones)&^d)&highs != 0 {
			return true
		}
	}
	for ; len(line) >= 8; line = line[8:] {
		x := binary.LittleEndian.Uint64(line)
		if (x-0x20*ones)&^x&highs != 0 {
			return true
		}
	}
	for _, c := range line {
		if c < ' ' {
			return true
		}
	}
	return false
}

// readMessage finds the id of a message.
func (h *head) readMessage(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return err
		}
		if string(name) == `"id"` && d.PeekKind() == '"' {
			tok, err := d.ReadToken()
			if err != nil {
				return err
			}
			h.message = tok.String()
			continue
		}
		if err := d.SkipValue(); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// scanLog reads a log. It also returns the end of its good part: before a line without an end,
// unless it is a complete record, and before the last lines if they are the start of a longer
// batch.
func scanLog(r io.ReaderAt, size int64) (*scan, int64, error) {
	s := newScan()
	end, err := s.read(r, 0, size, nil)
	if err != nil {
		return nil, 0, err
	}
	return s, end, nil
}

func newScan() *scan {
	return &scan{byUUID: map[string]*node{}, loose: map[string]span{}, effects: map[string]effect{}}
}

// read reads a log from a position, and returns the end of its good part. report, which may be
// nil, receives the position several times.
func (s *scan) read(r io.ReaderAt, from, size int64, report func(done int64)) (int64, error) {
	if report == nil {
		report = func(int64) {}
	}
	end, rest, err := s.readParts(r, from, size, partSize, report)
	if err != nil {
		return 0, err
	}
	return s.finish(end, rest), nil
}

// finish adds the last line if it is a complete record, and returns the end of the good part.
func (s *scan) finish(end int64, rest []byte) int64 {
	if len(rest) > 0 {
		if h, err := headOf(jsontext.NewDecoder(new(bytes.Buffer), lenient...), rest); err == nil {
			s.add(h, span{end, len(rest)})
			end += int64(len(rest))
			s.unended = true
		}
	}
	if s.batchLeft > 0 {
		end, s.unended = s.batchStart, false
	}
	s.link()
	return end
}

// addCorrupt adds a line that is no record.
func (s *scan) addCorrupt(off int64) {
	s.corrupt++
	s.corruptAt = append(s.corruptAt, off)
}

// link determines which records have children.
func (s *scan) link() {
	for _, n := range s.nodes {
		if p := s.byUUID[n.parent]; p != nil && !n.sidechain && !n.team {
			p.child = true
		}
	}
}

// add adds a record, or holds it back until the rest of its batch is there.
func (s *scan) add(h head, at span) {
	if s.batchLeft > 0 && h.more != s.batchLeft-1 {
		s.addBatch()
	}
	if h.more > 0 && !h.forked {
		if s.batchLeft == 0 {
			s.batchStart = at.off
		}
		s.batchLeft = h.more
		s.batch = append(s.batch, func() { s.addRecord(h, at) })
		return
	}
	s.addBatch()
	s.addRecord(h, at)
}

func (s *scan) addBatch() {
	for _, f := range s.batch {
		f()
	}
	s.batch, s.batchLeft = nil, 0
}

func (s *scan) addRecord(h head, at span) {
	if h.uuid == "" || !inTree(h.typ) {
		s.loose[h.typ] = at
		switch h.typ {
		case typeIntent:
			s.effects[h.toolUseID] = effect{intent: true}
		case typeOutcome:
			s.effects[h.toolUseID] = effect{intent: true, outcome: h.outcome, at: at}
		}
		return
	}
	n := &node{
		span: at, typ: h.typ, uuid: h.uuid, parent: h.parent, sidechain: h.sidechain, meta: h.meta, team: h.team,
		summary: h.summary, boundary: h.typ == typeSystem && h.subtype == "compact_boundary",
	}
	if h.typ == typeAssistant {
		n.message = h.message
	}
	s.nodes = append(s.nodes, n)
	s.byUUID[n.uuid] = n
}

// up returns the path from a node to its root, root first.
func (s *scan) up(n *node) []*node {
	var path []*node
	seen := map[*node]bool{}
	for n != nil && !seen[n] {
		seen[n] = true
		path = append(path, n)
		if n.parent == "" {
			break
		}
		n = s.byUUID[n.parent]
	}
	slices.Reverse(path)
	return path
}

// leaf returns the latest user or assistant record for which ok returns true on a path to a
// record without children, and that last record.
func (s *scan) leaf(ok func(*node) bool) (leaf, end *node) {
	at := int64(-1)
	for _, terminal := range s.nodes {
		if terminal.child {
			continue
		}
		for n, steps := terminal, 0; n != nil && steps <= len(s.nodes); n, steps = s.byUUID[n.parent], steps+1 {
			if n.typ != typeUser && n.typ != typeAssistant {
				continue
			}
			if ok(n) && n.off >= at {
				at, leaf, end = n.off, n, terminal
			}
			break
		}
	}
	return leaf, end
}

// chain returns the conversation since the last compaction, up to its last message or with all
// that follows it. Progress is left out.
func (s *scan) chain(r *lineReader, whole bool) ([]*node, error) {
	leaf, end := s.leaf(func(n *node) bool { return !n.sidechain && !n.team })
	if leaf == nil {
		return nil, nil
	}
	if !whole {
		end = leaf
	}
	return s.live(s.up(end), r, !whole)
}

// live returns the part of a path that belongs to the conversation.
func (s *scan) live(path []*node, r *lineReader, always bool) ([]*node, error) {
	path = slices.DeleteFunc(path, func(n *node) bool { return n.typ == typeProgress })
	for i, n := range slices.Backward(path) {
		if n.boundary {
			path = path[i:]
			break
		}
	}
	path, err := s.joinCalls(path, r, always)
	if err != nil || len(path) == 0 || !path[0].boundary {
		return path, err
	}
	return s.preserve(path, r)
}

// joinCalls adds the missing records of messages with several calls. Each block of such a
// message is a record below the previous one, and each result is below its call, so that no
// path to the root contains them all. If a prompt follows, the rest was left behind on
// purpose, and is added only for display.
func (s *scan) joinCalls(path []*node, r *lineReader, always bool) ([]*node, error) {
	on := map[*node]bool{}
	last := map[string]int{} // the last record of a message on the path
	for i, n := range path {
		on[n] = true
		if n.message != "" {
			last[n.message] = i
		}
	}
	blocks := map[string][]*node{}  // by message, in order
	answers := map[string][]*node{} // those that are not on the path, by parent
	for _, n := range s.nodes {
		switch _, ok := last[n.message]; {
		case n.sidechain:
		case ok && n.message != "":
			blocks[n.message] = append(blocks[n.message], n)
		case n.typ == typeUser && !on[n] && s.byUUID[n.parent] != nil && s.byUUID[n.parent].message != "":
			answers[n.parent] = append(answers[n.parent], n)
		}
	}
	var out []*node
	done := map[*node]bool{}
	put := func(n *node) {
		if !done[n] {
			done[n] = true
			out = append(out, n)
		}
	}
	for i, n := range path {
		put(n)
		if n.message == "" || last[n.message] != i {
			continue
		}
		var next *node
		if j := slices.IndexFunc(path[i+1:], func(m *node) bool { return m.typ == typeUser || m.typ == typeAssistant }); j >= 0 {
			next = path[i+1+j]
			if ok, err := r.answers(next); err != nil {
				return nil, err
			} else if !ok && !always {
				continue
			} else if !ok {
				next = nil
			}
		}
		results, err := r.results(blocks[n.message], answers)
		if err != nil {
			return nil, err
		}
		if len(results) == 0 && !slices.ContainsFunc(blocks[n.message], func(b *node) bool { return !on[b] }) {
			continue
		}
		if next != nil {
			results[next.parent] = next
		}
		for _, b := range blocks[n.message] {
			put(b)
		}
		// In their order of arrival, as the model saw them.
		for _, c := range slices.SortedFunc(maps.Values(results), func(a, b *node) int { return cmp.Compare(a.off, b.off) }) {
			put(c)
		}
	}
	return out, nil
}

// results returns the tool results among the records below blocks, by their parent.
func (r *lineReader) results(blocks []*node, below map[string][]*node) (map[string]*node, error) {
	results := map[string]*node{}
	for _, b := range blocks {
		for _, c := range below[b.uuid] {
			if ok, err := r.answers(c); err != nil {
				return nil, err
			} else if ok {
				results[b.uuid] = c
			}
		}
	}
	return results, nil
}

// preserve moves the messages that a compaction kept after its summary.
func (s *scan) preserve(path []*node, r *lineReader) ([]*node, error) {
	line, err := r.read(path[0].span)
	if err != nil {
		return nil, err
	}
	var record struct {
		CompactMetadata struct {
			PreservedMessages *struct {
				AnchorUUID string   `json:"anchorUuid"`
				UUIDs      []string `json:"uuids"`
			} `json:"preservedMessages"`
			PreservedSegment *struct {
				AnchorUUID string `json:"anchorUuid"`
				HeadUUID   string `json:"headUuid"`
				TailUUID   string `json:"tailUuid"`
			} `json:"preservedSegment"`
		} `json:"compactMetadata"`
	}
	json.Unmarshal(line, &record) // a malformed record preserves nothing
	var anchor string
	var kept []*node
	if p := record.CompactMetadata.PreservedMessages; p != nil {
		anchor = p.AnchorUUID
		for _, id := range p.UUIDs {
			n := s.byUUID[id]
			s.missing = s.missing || n == nil
			if n != nil && !slices.Contains(path, n) && !slices.Contains(kept, n) {
				kept = append(kept, n)
			}
		}
	} else if p := record.CompactMetadata.PreservedSegment; p != nil {
		anchor = p.AnchorUUID
		segment := s.up(s.byUUID[p.TailUUID])
		i := slices.IndexFunc(segment, func(n *node) bool { return n.uuid == p.HeadUUID })
		s.missing = s.missing || i < 0
		if i >= 0 && !slices.Contains(path, segment[i]) {
			kept = segment[i:]
		}
	}
	if len(kept) == 0 {
		return path, nil
	}
	at := slices.IndexFunc(path, func(n *node) bool { return n.uuid == anchor }) + 1
	if at == 0 { // after the summary, if there is one
		at = 1
		if len(path) > 1 && path[1].summary {
			at = 2
		}
	}
	return slices.Insert(slices.Clip(path), at, kept...), nil
}

// A lineReader reads lines of a log again.
type lineReader struct {
	r   io.ReaderAt
	buf []byte
}

// read returns a line, which is valid until the next call.
func (r *lineReader) read(at span) ([]byte, error) {
	r.buf = slices.Grow(r.buf[:0], at.len)[:at.len]
	if _, err := r.r.ReadAt(r.buf, at.off); err != nil {
		return nil, fmt.Errorf("session: reading again: %w", err)
	}
	return r.buf, nil
}

// answers reports whether a record contains results of calls.
func (r *lineReader) answers(n *node) (bool, error) {
	if n.typ != typeUser {
		return false, nil
	}
	line, err := r.read(n.span)
	if err != nil {
		return false, err
	}
	_, results := blockIDs(rawjson.Get(line, "message"))
	return len(results) > 0, nil
}

// blockIDs returns the ids of the calls and of the results in a message.
func blockIDs(message json.RawMessage) (calls, results []string) {
	for _, b := range rawjson.Elements(rawjson.Get(message, "content")) {
		switch rawjson.String(b, "type") {
		case "tool_use":
			calls = append(calls, rawjson.String(b, "id"))
		case "tool_result":
			results = append(results, rawjson.String(b, "tool_use_id"))
		}
	}
	return calls, results
}

// history reads the records of the conversation.
func (s *scan) history(at io.ReaderAt) (*History, error) {
	h, _, err := s.historyPath(at)
	return h, err
}

// historyPath is like history and also returns the nodes of the conversation.
func (s *scan) historyPath(at io.ReaderAt) (*History, []*node, error) {
	r := &lineReader{r: at}
	path, err := s.chain(r, true)
	if err != nil {
		return nil, nil, err
	}
	h := &History{Latest: map[string]*Entry{}, Corrupt: s.corrupt, effects: map[string]effect{}}
	for _, n := range path {
		line, err := r.read(n.span)
		if err != nil {
			return nil, nil, err
		}
		e, meta, err := decodeEntry(line)
		if err != nil {
			h.Corrupt++
			continue
		}
		h.Entries = append(h.Entries, e)
		h.Meta = meta
		var calls []string
		if len(s.effects) > 0 && e.Type == typeAssistant {
			calls, _ = blockIDs(e.Message)
		}
		for _, id := range calls {
			f, ok := s.effects[id]
			if !ok {
				continue
			}
			if f.outcome != "" {
				line, err := r.read(f.at)
				if err != nil {
					return nil, nil, err
				}
				f.content = outcomeContent(line)
			}
			h.effects[id] = f
		}
	}
	for typ, at := range s.loose {
		line, err := r.read(at)
		if err != nil {
			return nil, nil, err
		}
		if e, _, err := decodeEntry(line); err == nil {
			h.Latest[typ] = e
		}
	}
	return h, path, nil
}
