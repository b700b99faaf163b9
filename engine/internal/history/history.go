// Package history holds a conversation as it is sent to the API: its messages, the prefix
// of every request, and what is removed from them to save space or because the API rejects
// it.
//
// It is pure: it starts no goroutines, and neither records nor emits anything.
package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A History holds the parts of the requests of a conversation.
type History struct {
	Transcript
	Prefix Prefix

	bytes, tokens int64             // size of the last request: its messages in bytes, all of it in tokens
	refused       map[string]string // blocks that the API rejected, by their hash, with the reason
	pruned        map[string]bool   // results that were removed, by the ids of their calls
	answer        string            // id of the last restored answer with a known size
	restored      string            // id of the last restored answer
	block         int               // index of its last block
}

// Types of records about removed content. They are cumulative: the last one applies. The
// blocks themselves stay in the log.
const (
	prunedType     = "parley-pruned"     // results of tools, by the ids of their calls
	quarantineType = "parley-quarantine" // pictures and documents that the API rejected, by their hash
)

// SetMessages replaces the messages of the conversation.
func (h *History) SetMessages(t Transcript) {
	h.Transcript, h.bytes, h.tokens, h.pruned = t, 0, 0, nil
}

// Measured sets the number of tokens of a request whose messages have the given size in
// bytes.
func (h *History) Measured(bytes int, tokens int64) { h.bytes, h.tokens = int64(bytes), tokens }

// SizeKnown reports whether the size of an earlier request is known.
func (h *History) SizeKnown() bool { return h.tokens > 0 }

// Tokens estimates the tokens of a request with these messages: those of the last request,
// as counted by the API, plus a quarter of the new bytes.
func (h *History) Tokens(of *Transcript) int64 {
	if h.tokens == 0 {
		return int64(h.Bytes(of)) / 4
	}
	return max(0, h.tokens+(int64(of.Size())-h.bytes)/4)
}

// Bytes returns the approximate size in bytes of a request with these messages.
func (h *History) Bytes(of *Transcript) int {
	return len(h.Prefix.System) + len(h.Prefix.Tools) + of.Size()
}

// Restore restores what a session has removed. Afterwards its messages are restored one by
// one with [History.RestoreMessage].
func (h *History) Restore(latest map[string]*session.Entry) {
	if e := latest[quarantineType]; e != nil {
		json.Unmarshal(e.Fields["blocks"], &h.refused)
	}
	if e := latest[prunedType]; e != nil {
		var ids []string
		json.Unmarshal(e.Fields["toolUseIds"], &ids)
		h.pruned = map[string]bool{}
		for _, id := range ids {
			h.pruned[id] = true
		}
	}
}

// RestoreMessage adds a recorded message, without the parts that were removed from it.
func (h *History) RestoreMessage(e *session.Entry) error {
	id, blocks, err := MessageBlocks(e.Message)
	if err != nil {
		return fmt.Errorf("the session holds a message that cannot be read: %w", err)
	}
	if e.Type == "assistant" {
		h.restoreSize(e)
		// Results that were emitted before the answer was complete belong after it.
		block := -1 // unknown
		json.Unmarshal(e.Fields["apiBlockIndex"], &block)
		early := h.popResults(id != "" && id == h.restored && (block < 0 || block > h.block)) // some providers reuse ids
		h.restored, h.block = id, block
		for _, b := range blocks {
			h.Answer(id, b)
		}
		h.Messages = append(h.Messages, early...)
		return nil
	}
	for _, b := range blocks {
		if reason, ok := h.refused[hash(b)]; ok {
			b, _ = withoutMedia(b, reason)
		}
		if empty, id, ok := withoutResult(b); ok && h.pruned[id] {
			b = empty
		}
		h.Add("user", b)
	}
	return nil
}

// restoreSize restores the size of the request that an answer belongs to.
func (h *History) restoreSize(e *session.Entry) {
	id, usage := rawjson.String(e.Message, "id"), &wire.Usage{}
	if id == h.answer || json.Unmarshal(rawjson.Get(e.Message, "usage"), usage) != nil {
		return
	}
	if n := InputTokens(usage); n > 0 {
		h.answer = id
		h.Measured(h.Size(), n)
	}
}

// InputTokens returns the number of tokens in a request.
func InputTokens(u *wire.Usage) int64 {
	return u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens
}

// MessageBlocks returns the content of a recorded message, byte for byte.
func MessageBlocks(message json.RawMessage) (id string, blocks []json.RawMessage, err error) {
	var content []byte
	if !rawjson.Walk(message, func(name, value []byte) {
		switch string(name) {
		case "id":
			json.Unmarshal(value, &id)
		case "content":
			content = value
		}
	}) {
		return "", nil, errors.New("it is not an object")
	}
	switch {
	case len(content) == 0 || content[0] != '"' && content[0] != '[' && string(content) != "null":
		return "", nil, errors.New("its content is neither text nor blocks")
	case content[0] == '"':
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return "", nil, err
		}
		if text != "" {
			blocks = append(blocks, recorder.JSON(&wire.TextBlock{Text: text}))
		}
		return id, blocks, nil
	}
	for _, b := range rawjson.Elements(content) {
		if b[0] != '{' {
			return "", nil, errors.New("a block in it is not an object")
		}
		if BlockType(b) == "text" && string(rawjson.Get(b, "text")) == `""` {
			continue // the API rejects it
		}
		blocks = append(blocks, b)
	}
	return id, blocks, nil
}

const (
	keptResults = 40_000 // tokens of the newest results that are never removed
	pruneLeast  = 20_000 // minimum number of tokens that removing results must save
	pruneSmall  = 400    // size in bytes up to which a result is never removed
)

// prunedText replaces a removed result.
const prunedText = "[The result was removed to save space. Repeat the call if you need it.]"

// Prune removes old results of tools from the conversation, if that saves enough for the
// next request to stay well below the given number of tokens in the model's window; 0
// accepts any saving above the minimum. It first calls record with a record of the change,
// and removes nothing if that fails. It returns the number of tokens saved.
func (h *History) Prune(window, below int64, record func(*session.Entry) error) (saved int64, err error) {
	type place struct{ message, block int }
	old := map[place]bool{}
	newest := int64(0)
	for i, m := range slices.Backward(h.Messages) {
		if m.Role != "user" {
			continue
		}
		for k, b := range slices.Backward(m.Blocks) {
			if !IsResult(b) {
				continue
			}
			size := int64(len(b)) / 4
			if newest += size; newest > min(keptResults, window/5) && len(b) >= pruneSmall {
				old[place{i, k}] = true
				saved += size - int64(len(prunedText))/4
			}
		}
	}
	least := max(pruneLeast, window/10)
	if saved < least || below > 0 && h.Tokens(&h.Transcript)-saved > below-least/2 {
		return 0, nil
	}
	next, ids := h.WithoutResults(func(i, k int) bool { return old[place{i, k}] })
	all := maps.Clone(h.pruned)
	if all == nil {
		all = map[string]bool{}
	}
	for _, id := range ids {
		all[id] = true
	}
	if err := record(&session.Entry{Type: prunedType, Fields: recorder.Fields("toolUseIds", slices.Sorted(maps.Keys(all)))}); err != nil {
		return 0, err
	}
	h.Transcript, h.pruned = next, all
	return saved, nil
}

// withoutResult returns a tool result with its content removed, and the id of the call. ok
// is false if the block is not a result, or is too small.
func withoutResult(block json.RawMessage) (out json.RawMessage, id string, ok bool) {
	if len(block) < pruneSmall {
		return nil, "", false
	}
	var b struct {
		ToolUseID string `json:"tool_use_id"`
		IsError   bool   `json:"is_error"`
	}
	if BlockType(block) != "tool_result" || json.Unmarshal(block, &b) != nil {
		return nil, "", false
	}
	return recorder.JSON(&wire.ToolResultBlock{ToolUseID: b.ToolUseID, Content: wire.Text(prunedText), IsError: b.IsError}), b.ToolUseID, true
}

// blockAt matches the block that an error of the API names.
var blockAt = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`messages\.(\d+)\.content\.(\d+)`) })

// Quarantine removes pictures and documents that the API rejects from the conversation, by
// the status and message of its error. It returns a record of the change, after which the
// request can be sent again, or nil if there were none.
func (h *History) Quarantine(status int, message string) *session.Entry {
	if status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
		return nil
	}
	lower := strings.ToLower(message)
	n := 0
	if at := blockAt().FindStringSubmatch(message); at != nil {
		i, _ := strconv.Atoi(at[1])
		k, _ := strconv.Atoi(at[2])
		if len(h.Messages) > 0 && h.Messages[0].Role != "user" {
			i-- // AppendMessages put a message in front
		}
		if i >= 0 && i < len(h.Messages) && k < len(h.Messages[i].Blocks) {
			n = h.removeMedia(i, k, message)
		}
	} else if status == http.StatusRequestEntityTooLarge || strings.Contains(lower, "image") || strings.Contains(lower, "pdf") || strings.Contains(lower, "document") {
		// The error does not name the block: assume the newest ones, which the API has not
		// accepted yet.
		for i := len(h.Messages) - 1; i >= 0 && n == 0; i-- {
			for k := range h.Messages[i].Blocks {
				n += h.removeMedia(i, k, message)
			}
		}
	}
	if n == 0 {
		return nil
	}
	return &session.Entry{Type: quarantineType, Fields: recorder.Fields("blocks", h.refused)}
}

// removeMedia removes the pictures and documents from a block. It returns how many there were.
func (h *History) removeMedia(i, k int, reason string) int {
	m := &h.Messages[i]
	if m.Role != "user" {
		return 0
	}
	raw := m.Blocks[k]
	reason = "the API refused it: " + Clip(reason, 200)
	without, n := withoutMedia(raw, reason)
	if n == 0 {
		return 0
	}
	if h.refused == nil {
		h.refused = map[string]string{}
	}
	h.refused[hash(raw)] = reason
	m.Blocks[k] = without
	h.written = written{}
	return n
}

// Reminder wraps a text for the model that is not from the user. The text cannot close the
// wrapper.
func Reminder(text string) string {
	return "<system-reminder>\n" + strings.ReplaceAll(text, "</system-reminder>", "</ system-reminder>") + "\n</system-reminder>"
}

// Clip returns a text in one line, cut to n characters.
func Clip(s string, n int) string {
	s = strings.ReplaceAll(s, "\n", " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func hash(raw json.RawMessage) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// withoutMedia returns a block with its pictures and documents replaced by text, and how
// many there were.
func withoutMedia(raw json.RawMessage, reason string) (json.RawMessage, int) {
	if !bytes.Contains(raw, []byte(`"image"`)) && !bytes.Contains(raw, []byte(`"document"`)) {
		return raw, 0
	}
	note := recorder.JSON(picture.Placeholder(reason))
	switch BlockType(raw) {
	case "image", "document":
		return note, 1
	case "tool_result":
		var members map[string]json.RawMessage
		var content []json.RawMessage
		if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["content"], &content) != nil {
			return raw, 0
		}
		n := 0
		for i, b := range content {
			if t := BlockType(b); t == "image" || t == "document" {
				content[i] = note
				n++
			}
		}
		if n == 0 {
			return raw, 0
		}
		members["content"] = recorder.JSON(content)
		return recorder.JSON(members), n
	}
	return raw, 0
}
