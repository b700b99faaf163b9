package parleytest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// An op is one operation in the stream of an answer.
type op struct {
	kind opKind
	typ  string // of an event or error
	data []byte // of an event; the message of an error
	wait time.Duration
}

type opKind int

const (
	opEvent opKind = iota
	opMalformed
	opError
	opPing
	opPause
	opStall
	opCut
	opCutClean
	opReset
)

// stepOps are the ops of steps other than blocks.
var stepOps = map[stepKind]opKind{
	stepPause: opPause, stepPing: opPing, stepCut: opCut, stepCutClean: opCutClean,
	stepMalformed: opMalformed, stepStall: opStall, stepError: opError, stepReset: opReset,
}

// An answer is a turn with the values that depend on the request.
type answer struct {
	part
	model  string
	usage  Usage
	blocks []block
}

type block struct {
	step
	index int
	id    string
}

func (p part) answer(model string, auto *Usage) *answer {
	a := &answer{part: p, model: model, usage: defaultUsage}
	if auto != nil {
		a.usage = *auto
	}
	if p.turn.usage != nil {
		a.usage = *p.turn.usage
	}
	calls := 0
	for _, s := range p.turn.steps {
		if !s.kind.isBlock() {
			continue
		}
		b := block{step: s, index: len(a.blocks)}
		if s.kind == stepCall {
			calls++
			if b.id = s.id; b.id == "" {
				b.id = fmt.Sprintf("toolu_%s_%d_%d", p.label, p.n, calls)
			}
		}
		a.blocks = append(a.blocks, b)
	}
	return a
}

func (a *answer) id() string { return fmt.Sprintf("msg_%s_%d", a.label, a.n) }

func (a *answer) stopReason() string {
	if a.turn.stop != "" {
		return a.turn.stop
	}
	for _, b := range a.blocks {
		if b.kind == stepCall {
			return "tool_use"
		}
	}
	return "end_turn"
}

// ops returns all operations of the stream, in order.
func (a *answer) ops() []op {
	var ops []op
	var moved []step
	event := func(typ string, data []byte) { ops = append(ops, op{kind: opEvent, typ: typ, data: data}) }
	started := false
	start := func() {
		if !started {
			started = true
			event("message_start", a.messageStart())
		}
	}
	index := 0
	for _, s := range a.turn.steps {
		if !s.kind.isBlock() {
			if s.after > 0 {
				moved = append(moved, s)
				continue
			}
			if s.kind == stepPing {
				start()
			}
			ops = append(ops, s.op())
			continue
		}
		start()
		a.blockEvents(&a.blocks[index], event)
		index++
	}
	start()
	event("message_delta", a.messageDelta())
	event("message_stop", []byte(`{"type":"message_stop"}`))
	if len(moved) == 0 {
		return ops
	}
	n := 0
	var out []op
	for _, o := range ops {
		out = append(out, o)
		if o.kind == opEvent {
			n++
			for _, s := range moved {
				if s.after == n {
					out = append(out, s.op())
				}
			}
		}
	}
	return out
}

func (s step) op() op {
	o := op{kind: stepOps[s.kind], typ: s.name, wait: s.wait}
	if len(s.texts) > 0 {
		o.data = []byte(s.texts[0])
	}
	return o
}

func (a *answer) messageStart() []byte {
	b := []byte(`{"type":"message_start","message":`)
	b = a.appendMessage(b, true)
	return append(b, '}')
}

// message returns the complete answer, as the API returns it without streaming.
func (a *answer) message() []byte { return a.appendMessage(nil, false) }

func (a *answer) appendMessage(b []byte, start bool) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, a.id())
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = appendString(b, a.model)
	b = append(b, `,"content":[`...)
	if !start {
		for i := range a.blocks {
			if i > 0 {
				b = append(b, ',')
			}
			b = a.blocks[i].appendWhole(b)
		}
	}
	b = append(b, `],"stop_reason":`...)
	u := a.usage
	if start {
		b = append(b, `null,"stop_sequence":null`...)
		u.Output = min(u.Output, 1)
	} else {
		b = a.appendStop(b)
	}
	b = append(b, `,"usage":`...)
	b = u.append(b)
	return append(b, '}')
}

func (a *answer) appendStop(b []byte) []byte {
	b = appendString(b, a.stopReason())
	b = append(b, `,"stop_sequence":`...)
	if a.turn.stopSeq != "" {
		return appendString(b, a.turn.stopSeq)
	}
	return append(b, "null"...)
}

func (a *answer) messageDelta() []byte {
	b := []byte(`{"type":"message_delta","delta":{"stop_reason":`)
	b = a.appendStop(b)
	b = append(b, `},"usage":`...)
	b = a.usage.append(b)
	return append(b, '}')
}

func (u Usage) append(b []byte) []byte {
	b = fmt.Appendf(b, `{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},"output_tokens":%d,"service_tier":"standard"`,
		u.Input, u.CacheWrite+u.CacheWrite1h, u.CacheRead, u.CacheWrite, u.CacheWrite1h, u.Output)
	if u.WebSearch > 0 {
		b = fmt.Appendf(b, `,"server_tool_use":{"web_search_requests":%d}`, u.WebSearch)
	}
	return append(b, '}')
}

// appendWhole appends the block as one JSON object.
func (k *block) appendWhole(b []byte) []byte {
	switch k.kind {
	case stepSay:
		b = append(b, `{"type":"text","text":`...)
		b = appendString(b, k.text())
	case stepThink:
		b = append(b, `{"type":"thinking","thinking":`...)
		b = appendString(b, k.text())
		b = append(b, `,"signature":`...)
		b = appendString(b, sign(k.text()))
	case stepRedacted:
		b = append(b, `{"type":"redacted_thinking","data":`...)
		b = appendString(b, k.text())
	case stepCall:
		b = append(b, `{"type":"tool_use","id":`...)
		b = appendString(b, k.id)
		b = append(b, `,"name":`...)
		b = appendString(b, k.name)
		b = append(b, `,"input":`...)
		if in := []byte(k.text()); json.Valid(in) {
			b = append(b, in...)
		} else {
			b = append(b, "{}"...)
		}
	case stepBlock:
		return append(b, k.text()...)
	}
	return append(b, '}')
}

func (k *block) text() string {
	if len(k.texts) == 1 {
		return k.texts[0]
	}
	s := ""
	for _, t := range k.texts {
		s += t
	}
	return s
}

func (a *answer) blockEvents(k *block, event func(string, []byte)) {
	head := func(typ string) []byte {
		b := append([]byte(nil), `{"type":"`...)
		b = append(b, typ...)
		b = append(b, `","index":`...)
		return strconv.AppendInt(b, int64(k.index), 10)
	}
	begin := func(empty string) {
		b := append(head("content_block_start"), `,"content_block":`...)
		b = append(b, empty...)
		event("content_block_start", append(b, '}'))
	}
	delta := func(typ, member, value string) {
		b := append(head("content_block_delta"), `,"delta":{"type":"`...)
		b = append(b, typ...)
		b = append(b, `","`...)
		b = append(b, member...)
		b = append(b, `":`...)
		b = appendString(b, value)
		event("content_block_delta", append(b, "}}"...))
	}
	size := a.turn.chunk
	if size == 0 {
		size = 32
	}
	chunks := func(s string, yield func(string)) {
		for len(s) > size {
			n := size
			for n < len(s) && !utf8.RuneStart(s[n]) {
				n++
			}
			yield(s[:n])
			s = s[n:]
		}
		yield(s)
	}
	switch k.kind {
	case stepSay:
		begin(`{"type":"text","text":""}`)
		if len(k.texts) > 1 {
			for _, t := range k.texts {
				delta("text_delta", "text", t)
			}
		} else if k.texts[0] != "" {
			chunks(k.texts[0], func(s string) { delta("text_delta", "text", s) })
		}
	case stepThink:
		begin(`{"type":"thinking","thinking":"","signature":""}`)
		if k.text() != "" {
			chunks(k.text(), func(s string) { delta("thinking_delta", "thinking", s) })
		}
		delta("signature_delta", "signature", sign(k.text()))
	case stepCall:
		b := append([]byte(nil), `{"type":"tool_use","id":`...)
		b = appendString(b, k.id)
		b = append(b, `,"name":`...)
		b = appendString(b, k.name)
		begin(string(append(b, `,"input":{}}`...)))
		delta("input_json_delta", "partial_json", "")
		if k.text() != "" {
			chunks(k.text(), func(s string) { delta("input_json_delta", "partial_json", s) })
		}
	default:
		begin(string(k.appendWhole(nil)))
	}
	event("content_block_stop", append(head("content_block_stop"), '}'))
}

// sign returns the signature of a thinking block. Checking it needs no state,
// so a conversation may continue with another server.
func sign(thinking string) string {
	h := hmac.New(sha256.New, []byte("parleytest thinking"))
	h.Write([]byte(thinking))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			q, _ := json.Marshal(s)
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
