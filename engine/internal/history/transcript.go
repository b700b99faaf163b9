package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/wire"
)

// A Transcript holds the messages of a conversation. Sent messages are kept as bytes: each
// request starts with the same bytes as the previous one, as prompt caching requires.
type Transcript struct {
	Messages []Message

	// Blocks of an answer that the API accepts only with another one after them: thinking, and
	// calls that the API itself runs. They are added to the conversation when that block
	// arrives.
	held    []json.RawMessage
	heldID  string // id of their message
	serving bool   // a call is among them

	written // for a conversation that is sent again and again
}

// written is the encoded start of a conversation, so that a request costs only what is new in
// it. Its messages do not change any more, and their blocks are in its pieces.
type written struct {
	pieces [][]byte
	n      int // messages
	size   int // of their blocks
}

// pieceSize is the size of a piece, unless one message is longer.
const pieceSize = 32 << 10

// A Message is one message of the API.
type Message struct {
	Role   string
	Blocks []json.RawMessage
}

// BlockType returns the type of a block.
func BlockType(block json.RawMessage) string {
	return rawjson.String(block, "type")
}

// IsResult reports whether a block is the result of a call.
func IsResult(block json.RawMessage) bool { return BlockType(block) == "tool_result" }

// Clone returns a copy of the messages to which others can be added.
func (t *Transcript) Clone() Transcript {
	out := Transcript{Messages: slices.Clone(t.Messages)}
	if n := len(out.Messages); n > 0 {
		out.Messages[n-1].Blocks = slices.Clip(out.Messages[n-1].Blocks)
	}
	return out
}

// Answer appends a block of the model's message with the given id.
func (t *Transcript) Answer(id string, block json.RawMessage) {
	if len(t.held) > 0 && t.heldID != id {
		// The message of the held blocks has ended. If it only paused, this one continues it;
		// otherwise the held thinking is dropped.
		t.GoOn()
	}
	switch BlockType(block) {
	case "server_tool_use":
		t.serving = true
		fallthrough
	case "thinking", "redacted_thinking":
		t.held, t.heldID = append(t.held, block), id
		return
	}
	blocks := append(t.held, block)
	t.held, t.serving = nil, false
	t.Add("assistant", blocks...)
}

// GoOn is called when the answer so far is sent back for the model to continue.
func (t *Transcript) GoOn() {
	held, serving := t.held, t.serving
	t.held, t.serving = nil, false
	if serving {
		t.Add("assistant", held...)
	}
}

// Add appends blocks. Consecutive blocks of one role form one message. Results come first in
// it, in the order of their calls.
func (t *Transcript) Add(role string, blocks ...json.RawMessage) {
	if len(blocks) == 0 {
		return
	}
	t.held, t.serving = nil, false
	if n := len(t.Messages); n > 0 && t.Messages[n-1].Role == role {
		m := &t.Messages[n-1]
		m.Blocks = append(m.Blocks, blocks...)
		if role == "user" && IsResult(blocks[0]) {
			t.sortResults()
		}
		return
	}
	t.Messages = append(t.Messages, Message{Role: role, Blocks: append([]json.RawMessage(nil), blocks...)})
}

// sortResults moves the results of calls to the start of the last message, in the order of the
// calls in the answer before it.
func (t *Transcript) sortResults() {
	n := len(t.Messages)
	if n < 2 {
		return
	}
	at := map[string]int{}
	answer := Transcript{Messages: t.Messages[n-2 : n-1]}
	answer.EachCall(func(id, _ string, _ json.RawMessage) { at[id] = len(at) - len(t.Messages[n-2].Blocks) })
	key := func(b json.RawMessage) int {
		var result struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
		}
		if json.Unmarshal(b, &result); result.Type == "tool_result" {
			return at[result.ToolUseID]
		}
		return 1
	}
	byCall := func(a, b json.RawMessage) int { return cmp.Compare(key(a), key(b)) }
	if m := &t.Messages[n-1]; !slices.IsSortedFunc(m.Blocks, byCall) { // the slice may be shared
		m.Blocks = slices.SortedStableFunc(slices.Values(m.Blocks), byCall)
	}
}

// popResults removes and returns the last message if it consists of results only.
func (t *Transcript) popResults(want bool) (taken []Message) {
	n := len(t.Messages)
	if !want || n == 0 || t.Messages[n-1].Role != "user" || slices.ContainsFunc(t.Messages[n-1].Blocks, func(b json.RawMessage) bool { return !IsResult(b) }) {
		return nil
	}
	taken = []Message{t.Messages[n-1]}
	t.Messages = t.Messages[:n-1]
	return taken
}

// LastRole returns the role of the last message, or "".
func (t *Transcript) LastRole() string {
	if len(t.Messages) == 0 {
		return ""
	}
	return t.Messages[len(t.Messages)-1].Role
}

// Size returns the approximate size of the messages in bytes.
func (t *Transcript) Size() int {
	n := t.size
	for _, m := range t.Messages[t.n:] {
		n += m.size()
	}
	return n
}

func (m *Message) size() (n int) {
	for _, b := range m.Blocks {
		n += len(b)
	}
	return n
}

// Split splits off the last n blocks of a conversation whose last message is the user's. It
// splits off fewer if the result of a call is among them.
func (t *Transcript) Split(n int) (head Transcript, tail []json.RawMessage) {
	head.Messages = slices.Clone(t.Messages)
	last := len(head.Messages) - 1
	if last < 0 || head.Messages[last].Role != "user" {
		return head, nil
	}
	blocks := head.Messages[last].Blocks
	at := len(blocks)
	for at > 0 && n > 0 && !IsResult(blocks[at-1]) {
		at, n = at-1, n-1
	}
	if n > 0 {
		at = len(blocks) // inconsistent: split off nothing
	}
	if tail = blocks[at:]; at == 0 {
		head.Messages = head.Messages[:last]
	} else {
		head.Messages[last].Blocks = slices.Clip(blocks[:at])
	}
	return head, tail
}

// WithoutResults returns the conversation without the results for which want returns true, and
// the ids of their calls. A nil want means all.
func (t *Transcript) WithoutResults(want func(message, block int) bool) (out Transcript, ids []string) {
	out = *t
	out.Messages, out.written = slices.Clone(t.Messages), written{}
	for i, m := range out.Messages {
		if m.Role != "user" {
			continue
		}
		copied := false
		for k, b := range m.Blocks {
			if want != nil && !want(i, k) {
				continue
			}
			empty, id, ok := withoutResult(b)
			if !ok {
				continue
			}
			if !copied {
				copied = true
				m.Blocks = slices.Clone(m.Blocks)
				out.Messages[i].Blocks = m.Blocks
			}
			m.Blocks[k] = empty
			ids = append(ids, id)
		}
	}
	return out, ids
}

// WithoutOldest leaves out the first half of the messages. It returns false if nothing can be
// left out.
func (t *Transcript) WithoutOldest() (Transcript, bool) {
	for i := max(1, len(t.Messages)/2); i < len(t.Messages); i++ {
		if t.Messages[i].Role != "assistant" {
			continue // it may contain results of calls that are left out
		}
		var rest Transcript
		rest.Add("user", recorder.JSON(&wire.TextBlock{Text: "[The beginning of the conversation was left out, because it is too long.]"}))
		rest.Messages = append(rest.Messages, t.Messages[i:]...)
		return rest, true
	}
	return t.Clone(), false
}

// EachCall calls f with the tool calls, in order.
func (t *Transcript) EachCall(f func(id, name string, input json.RawMessage)) {
	for _, m := range t.Messages {
		if m.Role != "assistant" {
			continue
		}
		for _, b := range m.Blocks {
			var call wire.ToolUseBlock
			if BlockType(b) == "tool_use" && json.Unmarshal(b, &call) == nil {
				f(call.ID, call.Name, call.Input)
			}
		}
	}
}

// CloseCalls adds a text as the result of each call of the last answer that has none, because
// the API requires one.
func (t *Transcript) CloseCalls(text string) {
	at := len(t.Messages) - 1
	answered := map[string]bool{}
	if at > 0 && t.LastRole() == "user" {
		for _, b := range t.Messages[at].Blocks {
			var result wire.ToolResultBlock
			if IsResult(b) && json.Unmarshal(b, &result) == nil {
				answered[result.ToolUseID] = true
			}
		}
		at--
	}
	if at < 0 {
		return
	}
	var results []json.RawMessage
	answer := Transcript{Messages: t.Messages[at : at+1]}
	answer.EachCall(func(id, _ string, _ json.RawMessage) {
		if !answered[id] {
			results = append(results, recorder.JSON(&wire.ToolResultBlock{ToolUseID: id, Content: wire.Text(text)}))
		}
	})
	t.Add("user", results...)
}

// cacheControl is added to the last block of a prefix that the API should cache.
const cacheControl = `"cache_control":{"type":"ephemeral"}`

// cached returns a block with a breakpoint after it.
func cached(block json.RawMessage) json.RawMessage {
	block = bytes.TrimSpace(block)
	if len(block) < 2 || block[len(block)-1] != '}' || bytes.Contains(block, []byte(`"cache_control"`)) {
		return block
	}
	out := append(json.RawMessage(nil), block[:len(block)-1]...)
	if len(block) > 2 {
		out = append(out, ',')
	}
	return append(append(out, cacheControl...), '}')
}

// AppendMessages appends the messages in the form of a request. Without mark they have no
// breakpoints.
func (t *Transcript) AppendMessages(dst []byte, mark bool) []byte {
	return append(dst, bytes.Join(t.messages(nil, mark, false), nil)...)
}

// messages appends the pieces of the messages. Two of the four breakpoints are here: after the
// last message, and after the user's message before it, so that a long turn still finds what
// the previous one wrote. Without mark there are none. If the conversation grows, the messages
// before these are encoded once.
func (t *Transcript) messages(pieces [][]byte, mark, grows bool) [][]byte {
	last := len(t.Messages) - 1
	marks := [2]int{last + 1, last + 1} // the messages that are marked
	for i, n := last, 0; i >= 0 && n < len(marks); i-- {
		if t.Messages[i].Role == "user" {
			marks[n] = i
			n++
		}
	}
	if grows {
		t.write(min(marks[0], marks[1], max(last, 0)))
	}
	pieces = append(pieces, []byte("["))
	pieces = append(pieces, t.pieces...)
	var tail []byte
	if t.n == 0 {
		tail = t.beginWithUser(tail)
	}
	for i, m := range t.Messages[t.n:] {
		i += t.n
		blocks := m.Blocks
		if k := len(blocks) - 1; mark && k >= 0 && (i == marks[0] || i == marks[1]) {
			blocks = append(slices.Clip(blocks[:k:k]), cached(blocks[k]))
		}
		tail, _ = Message{m.Role, blocks}.append(slices.Grow(tail, m.size()+128), false)
		if i < last {
			tail = append(tail, ',')
		}
	}
	return append(pieces, append(tail, ']'))
}

// beginWithUser appends a message of the user if the first one is not, because the API requires the
// user to begin.
func (t *Transcript) beginWithUser(dst []byte) []byte {
	if len(t.Messages) > 0 && t.Messages[0].Role != "user" {
		dst = append(dst, `{"role":"user","content":[{"type":"text","text":"(no content)"}]},`...)
	}
	return dst
}

// append appends the message. With own it returns the blocks as they are in dst.
func (m Message) append(dst []byte, own bool) (out []byte, blocks []json.RawMessage) {
	if own {
		blocks = make([]json.RawMessage, 0, len(m.Blocks))
	}
	dst = append(append(append(dst, `{"role":"`...), m.Role...), `","content":[`...)
	for k, b := range m.Blocks {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, b...)
		if own {
			blocks = append(blocks, dst[len(dst)-len(b):len(dst):len(dst)])
		}
	}
	return append(dst, "]}"...), blocks
}

// write encodes the messages before the one with an index, each followed by a comma.
func (t *Transcript) write(before int) {
	for ; t.n < before; t.n++ {
		m := &t.Messages[t.n]
		need := m.size() + len(m.Blocks) + 128 // including the one that begins
		if n := len(t.pieces); n == 0 || cap(t.pieces[n-1])-len(t.pieces[n-1]) < need {
			t.pieces = append(t.pieces, make([]byte, 0, max(need, pieceSize)))
		}
		piece := &t.pieces[len(t.pieces)-1]
		if t.n == 0 {
			*piece = t.beginWithUser(*piece)
		}
		t.size += m.size()
		*piece, m.Blocks = m.append(*piece, true)
		*piece = append(*piece, ',')
	}
}
